#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attune/attention.h"
#include "generator/problem/attention_problem.h"
#include "runtime/device.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

class ArgumentValues;

/// A ReferenceForward whose large parts stay in device memory.
struct DeviceReference {
  DeviceBuffer o, weight;  ///< doubles, in ReferenceForward's order
  std::vector<double> lse;

  /// How much device memory it takes to make one.
  static std::size_t bytes_of(const AttentionProblem& problem);
  ReferenceForward to_host(Device& device) const;
};

/// Computes the reference by the generated fp64 kernel. `tensors` needs q, k and v, and sinks.
DeviceReference make_device_reference(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                      const Tensors& tensors);

/// A ReferenceGradient in device memory.
struct DeviceGradient {
  DeviceBuffer buffer;  ///< doubles, in ReferenceGradient's order: all values, then all weights
  double noise_squares = 0;

  DevicePointer values() const { return buffer.pointer(); }
  DevicePointer weights() const { return buffer.pointer() + buffer.bytes() / 2; }
  ReferenceGradient to_host(Device& device) const;
};

/// A ReferenceBackward that stays in device memory.
struct DeviceGradients {
  DeviceGradient d_q, d_k, d_v;
  ReferenceSinkGradient d_sinks;  ///< on the host: a few numbers
  DeviceGradient d_bias;          ///< empty where it is not wanted

  static std::size_t bytes_of(const AttentionProblem& problem);
  ReferenceBackward to_host(Device& device) const;
};

/// By the generated fp64 kernels. `tensors` need q, k, v and d_o, and sinks, and may have d_lse. As
/// reference_backward(), from an O and LSE of its own.
DeviceGradients make_device_gradients(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                      const Tensors& tensors);

/// Makes inputs and checks results where they are, so that only sums cross the bus. Kernels are compiled at their first
/// use. Not thread-safe; all functions wait until the device is done, and throw Error.
class DeviceOracle {
 public:
  /// Takes scratch_bytes() of device memory, and no more later.
  DeviceOracle(std::shared_ptr<Device> device, const AttentionProblem& problem);
  ~DeviceOracle();
  static std::size_t scratch_bytes();

  /// What compare_forward() says of O, but for the order of its sums. `o` has the strides of packed_view().
  OutputErrors compare_o(const DeviceReference& reference, const TensorView& o);

  /// What compare_backward() says of dQ, dK, dV, dsinks and dbias, but for the order of its sums. They have the strides
  /// of packed_view().
  std::vector<OutputErrors> compare_gradients(const DeviceGradients& reference, const Tensors& tensors);

  /// checksum() of `count` elements from an even address.
  std::uint64_t checksum(DevicePointer elements, std::int64_t count);

  /// random_normal() of the problem's dtype into `copies` tensors of `count` elements that lie `copy_stride` elements
  /// apart.
  void fill_random_normal(DevicePointer elements, std::int64_t count, std::uint64_t seed, std::int64_t copies,
                          std::int64_t copy_stride);

 private:
  struct Kernel;
  void launch(const Kernel& kernel, const AttentionProblem& problem, const Tensors& tensors,
              const ArgumentValues& values, std::uint32_t grid);
  OutputErrors compare(const ComparedOutput& output, const TensorView& tensor, DevicePointer reference,
                       DevicePointer weight);
  template <typename Partial>
  std::vector<Partial> read_partials(std::uint32_t count);

  std::shared_ptr<Device> device_;
  AttentionProblem problem_;
  DeviceBuffer partials_;
  std::unique_ptr<Kernel> comparison_, bias_comparison_, checksum_, random_normal_;
};

}  // namespace attune
