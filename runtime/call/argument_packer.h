#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "attune/attention.h"
#include "generator/plan/kernel_plan.h"

namespace attune {

/// What a launch takes beside the tensors of a call and what follows from its problem: buffers and numbers, by their
/// names. Setting and finding them allocates nothing.
class ArgumentValues {
 public:
  void set(const Buffer& buffer, DevicePointer pointer) { set(buffer.name, pointer); }
  void set(const Given& given, double value) { set(given.name, std::bit_cast<std::uint64_t>(value)); }
  void set(const Given& given, std::int64_t value) { set(given.name, static_cast<std::uint64_t>(value)); }
  void set(const Given& given, std::uint64_t value) { set(given.name, value); }
  /// The 8 bytes of what was set last. Throws Error(internal) if nothing has the name.
  std::uint64_t bits(std::string_view name) const;

 private:
  struct Named {
    std::string_view name;
    std::uint64_t bits;
  };
  void set(std::string_view name, std::uint64_t bits);

  std::array<Named, 24> values_;
  std::size_t count_ = 0;
};

/// Where the buffers of a plan lie in a workspace.
ArgumentValues workspace_values(const KernelPlan& plan, const AttentionProblem& problem, DevicePointer workspace);

/// Whether a tensor map describes a call's tensor: of one of pairs, as its address and strides are; whatever is asked
/// for of others was checked before.
bool has_tensor_map(const AttentionProblem& problem, Operand operand, const TensorView& view);
/// The copy of an operand in a workspace.
TensorView view_of_copy(const KernelPlan& plan, const AttentionProblem& problem, const OperandCopy& copy,
                        DevicePointer workspace);

/// The argument struct of one launch, by value: packing allocates nothing.
struct PackedArguments {
  static constexpr std::size_t kCapacity = 1536;
  alignas(64) std::array<std::byte, kCapacity> data;
  std::size_t bytes = 0;
};

/// Fills the argument struct that launch.arguments describes; tensor maps are those of `device`. Throws Error(internal)
/// if it has more bytes than fit or a field that nothing was given for, and what encode_tensor_map() throws.
void pack_arguments(const KernelLaunch& launch, const AttentionProblem& problem, const Tensors& tensors,
                    const ArgumentValues& values, const Device& device, PackedArguments& packed);

}  // namespace attune
