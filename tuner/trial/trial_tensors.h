#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "runtime/oracle/device_oracle.h"

namespace attune {

/// On each side of every output.
inline constexpr std::size_t kGuardBytes = 4096;
/// Repeated: NaN in fp16, bf16 and fp32, and a counter that is not zero.
inline constexpr std::uint8_t kNotANumber = 0xff;

/// A tensor in device memory, one or more times, each between margins:   | margin | tensor | margin |   ...
class TensorCopies {
 public:
  TensorCopies() = default;
  /// `shift`: bytes that the tensors start beyond a multiple of 256.
  TensorCopies(std::size_t bytes, std::size_t margin, std::size_t shift, std::size_t copies);
  void allocate(const std::shared_ptr<Device>& device) { buffer_ = DeviceBuffer(device, total_bytes()); }

  std::size_t bytes() const { return bytes_; }
  std::size_t total_bytes() const { return stride_ * copies_; }
  DevicePointer buffer() const { return buffer_.pointer(); }
  std::size_t tensor_offset() const { return margin_ + shift_; }
  /// First byte of the margin before a copy; the copy's region, margins included, has region_bytes().
  DevicePointer region(std::size_t copy) const { return buffer_.pointer() + copy * stride_; }
  std::size_t region_bytes() const { return 2 * margin_ + shift_ + bytes_; }
  DevicePointer tensor(std::size_t copy) const { return region(copy) + tensor_offset(); }
  std::size_t stride() const { return stride_; }
  std::size_t copies() const { return copies_; }

 private:
  std::size_t bytes_ = 0, margin_ = 0, shift_ = 0, copies_ = 0, stride_ = 0;
  DeviceBuffer buffer_;
};

/// The tensors of one problem's calls on a device, packed in problem.layout: inputs with NaN around them, outputs with
/// guards. Forward's inputs are q, k and v, its outputs O and LSE; backward's inputs are all of these, dO and dLSE, its
/// outputs dQ, dK and dV. Not thread-safe; functions throw Error.
class TrialTensors {
 public:
  /// Lays them out; takes no memory yet. On a device that can time there are as many copies of each as exceed twice its
  /// L2.
  TrialTensors(std::shared_ptr<Device> device, const AttentionProblem& problem);

  /// That are not allocated yet.
  std::size_t missing_bytes() const;
  void allocate();

  std::size_t copies() const { return of(Operand::q).copies(); }
  const TensorCopies& of(Operand operand) const;
  const OperandList& inputs() const { return inputs_; }
  const OperandList& outputs() const { return outputs_; }
  Tensors call(std::size_t copy) const;  ///< all of them

  /// random_normal() values of a 16-bit input; by the oracle's kernel, if there is one.
  void fill_random(Operand operand, std::uint64_t seed, DeviceOracle* oracle);
  /// All copies of an input from its values on the host.
  void upload(Operand operand, const void* values);

  /// The first copies, guards too.
  void poison_outputs();
  /// The bands on both sides of the first copies; complaints are appended to `errors`.
  void check_guards(std::vector<OutputErrors>& errors) const;
  /// Checksums of the first copies of all inputs, margins included, in their order.
  std::vector<std::uint64_t> input_checksums(DeviceOracle* oracle) const;

  /// The first copy, of elements T.
  template <typename T>
  void read_back(Operand operand, std::vector<T>& values) const {
    values.resize(of(operand).bytes() / sizeof(T));
    read(values.data(), of(operand).tensor(0), of(operand).bytes());
  }

 private:
  void read(void* to, DevicePointer from, std::size_t bytes) const;
  void write(DevicePointer to, const void* from, std::size_t bytes);

  std::shared_ptr<Device> device_;
  const AttentionProblem problem_;
  const OperandList inputs_, outputs_;
  std::array<TensorCopies, kOperandCount> tensors_;  // by operand
};

/// What is wrong beside an output's values, as an entry of that name.
OutputErrors broken_output(const std::string& name, std::string complaint);

}  // namespace attune
