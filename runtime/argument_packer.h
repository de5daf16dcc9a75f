#pragma once

#include <array>
#include <cstddef>

#include "attune/attention.h"
#include "generator/kernel_plan.h"

namespace attune {

/// Pointers beside a call's tensors.
struct ArgumentPointers {
  DevicePointer workspace = 0;
  DevicePointer counters = 0;                               ///< the same, if it has room for the plan's counters
  DevicePointer o_fp64 = 0, lse_fp64 = 0, weight_fp64 = 0;  ///< where the reference kernel writes doubles
};

/// The argument struct of one launch, by value: packing allocates nothing.
struct PackedArguments {
  static constexpr std::size_t kCapacity = 1024;
  alignas(64) std::array<std::byte, kCapacity> data;
  std::size_t bytes = 0;
};

/// Fills the argument struct that launch.arguments describes; tensor maps are those of `device`. Throws Error(internal)
/// if it has more bytes than fit, and what encode_tensor_map() throws.
void pack_arguments(const KernelLaunch& launch, const AttentionProblem& problem, const ForwardTensors& tensors,
                    const ArgumentPointers& pointers, const Device& device, PackedArguments& packed);

}  // namespace attune
