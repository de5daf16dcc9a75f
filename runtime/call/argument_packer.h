#pragma once

#include <array>
#include <cstddef>

#include "attune/attention.h"
#include "generator/plan/kernel_plan.h"

namespace attune {

/// What a launch takes beside the tensors of a call: pointers, and the numbers that checks need.
struct ArgumentValues {
  const GradientTensors* gradients = nullptr;  ///< of a backward launch
  DevicePointer workspace = 0;
  DevicePointer statistics = 0, d_q_sums = 0, turns = 0;    ///< in the workspace, of a backward launch
  DevicePointer d_k_sums = 0, d_v_sums = 0, key_turns = 0;  ///< the same
  DevicePointer scores = 0, o_blocks = 0, row_states = 0;   ///< the same, of a forward launch
  DevicePointer counters = 0;                               ///< the same, if it has room for the plan's counters
  DevicePointer o_fp64 = 0, lse_fp64 = 0, weight_fp64 = 0;  ///< where the reference kernel writes doubles
  DevicePointer d_q_fp64 = 0, d_k_fp64 = 0, d_v_fp64 = 0;   ///< and those of the gradients, which read them
  DevicePointer row_statistics = 0;                         ///< between these
  double unit_roundoff = 0, smallest_step = 0;              ///< the bounds of O, as bounds_of() gives them
  DevicePointer partials = 0;                               ///< what each CTA of a check leaves
  DevicePointer elements = 0;                               ///< of 16 bits: what a checksum reads or randomness fills
  std::int64_t element_count = 0;
  std::int64_t copies = 1, copy_stride = 0;  ///< of the random elements; the distance in elements
  std::uint64_t seed = 0;
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
                    const ArgumentValues& values, const Device& device, PackedArguments& packed);

}  // namespace attune
