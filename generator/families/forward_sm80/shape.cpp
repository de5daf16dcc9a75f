#include "generator/families/forward_sm80/shape.h"

#include <algorithm>
#include <bit>

#include "generator/device/register_limit.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/problem/element_type.h"
#include "generator/rounding.h"

namespace attune {
ForwardSm80Shape forward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config) {
  ForwardSm80Shape shape;
  const int head_dim = problem.head_dim;
  shape.threads = 32 * config.warps;
  shape.rows_per_warp = config.block_q / config.warps;
  shape.group = heads_of_tile(problem, config);
  shape.chunks = head_dim / 8;
  const auto element_bytes = static_cast<std::size_t>(size_of(problem.dtype));
  shape.row_bytes = size_of(problem.dtype) * head_dim;

  shape.q_bytes = static_cast<std::size_t>(config.block_q) * shape.row_bytes;
  shape.kv_tile_bytes = static_cast<std::size_t>(config.block_kv) * shape.row_bytes;
  shape.shared.add({"kQOffset", "Q", {config.block_q, problem.head_dim_qk()}, element_bytes, "   later O"});
  shape.shared.add({"kKOffset", "K", {config.stages, config.block_kv, problem.head_dim_qk()}, element_bytes});
  shape.shared.add({"kVOffset", "V", {config.stages, config.block_kv, problem.head_dim_v()}, element_bytes});

  // fp32 accumulators spread over 32 lanes; Q as packed pairs.
  const int output = shape.rows_per_warp * problem.head_dim_v() / 32;
  const int scores = shape.rows_per_warp * config.block_kv / 32;
  const int query = config.q_in_registers ? shape.rows_per_warp * problem.head_dim_qk() / 64 : 0;
  shape.accumulator_registers = output + scores + query;
  const int row_state = 3 * shape.rows_per_warp / 8;  // maximum, sum and last key of each row
  const int fragments = shape.rows_per_warp / 16 * 4 + 16;
  shape.registers_estimate = shape.accumulator_registers + row_state + fragments + 28;

  // Fitted to 3841 kernels that neither spill nor reach the limit (head dims 16 to 256, CUDA 13.0): fragments loaded
  // ahead grow with the row and with the scores; where a row's chunks are no power of two, addresses are not constants
  // apart.
  const int addresses = std::has_single_bit(static_cast<unsigned>(shape.chunks)) ? 0 : 20;
  shape.registers_likely =
      std::max(32, shape.registers_estimate - 21 + scores * 9 / 20 + std::min(head_dim, 90) * 2 / 3 + addresses);
  return shape;
}

ForwardSm80Residency forward_sm80_residency(const ForwardSm80Shape& shape, const KernelConfig& config,
                                            const DeviceSpec& device) {
  ForwardSm80Residency residency;
  // ptxas rather gives up fragments loaded ahead than the next step of eight registers.
  residency.registers =
      std::min(register_limit(shape.threads, config.ctas_per_sm, device), shape.registers_likely / 8 * 8);
  const auto shared = static_cast<int>(shape.shared.bytes()) + device.shared_bytes_reserved;
  const int allocated = round_up(residency.registers, 8) * shape.threads;
  residency.ctas = std::max(1, std::min({device.registers_per_sm / allocated, device.shared_bytes_per_sm / shared,
                                         device.threads_per_sm / shape.threads, device.ctas_per_sm}));
  return residency;
}

}  // namespace attune
