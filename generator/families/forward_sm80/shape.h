#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What follows from a config and a head dim for the sm80 forward kernel: sizes, offsets and register needs. Pure
/// arithmetic. Assumes fields that pass the first checks of infeasibility() (positive, block_q a multiple of 16 *
/// warps).
struct ForwardSm80Shape {
  int threads = 0;
  int rows_per_warp = 0;
  int group = 1;      ///< query heads whose rows lie in a tile
  int chunks = 0;     ///< 16-byte chunks of a row: head_dim / 8
  int row_bytes = 0;  ///< of a row in shared memory
  SharedLayout shared;
  std::size_t q_bytes = 0, kv_tile_bytes = 0;
  int accumulator_registers = 0;  ///< O, S and, if held, Q: what cannot live elsewhere
  int registers_estimate = 0;     ///< with addresses, packed P and B fragments: with fewer the kernel spills
  int registers_likely = 0;       ///< what ptxas takes where nothing limits it: it loads fragments ahead of their use
};

/// What an SM holds of a kernel of this shape, as far as it is known before it is compiled.
struct ForwardSm80Residency {
  int registers = 0;  ///< of a thread
  int ctas = 1;
};
ForwardSm80Residency forward_sm80_residency(const ForwardSm80Shape& shape, const KernelConfig& config,
                                            const DeviceSpec& device);

ForwardSm80Shape forward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
