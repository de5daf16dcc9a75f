#pragma once

#include <array>
#include <cstddef>

#include "attune/attention.h"
#include "generator/kernel_plan.h"

namespace attune {

/// Where the reference kernel writes.
struct ReferencePointers {
  DevicePointer o = 0, lse = 0, weight = 0;  ///< doubles
};

/// The argument struct of one launch, by value: packing allocates nothing.
struct PackedArguments {
  static constexpr std::size_t kCapacity = 512;
  alignas(16) std::array<std::byte, kCapacity> data;
  std::size_t bytes = 0;
};

/// Fills the argument struct that launch.arguments describes. Throws Error(internal) if it has more bytes than fit.
void pack_arguments(const KernelLaunch& launch, const AttentionProblem& problem, const ForwardTensors& tensors,
                    const ReferencePointers& reference, PackedArguments& packed);

}  // namespace attune
