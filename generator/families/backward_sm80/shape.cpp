#include "generator/families/backward_sm80/shape.h"

#include <algorithm>

#include "generator/families/backward_common/workspace.h"
#include "generator/problem/element_type.h"
#include "generator/rounding.h"

namespace attune {
namespace {
constexpr std::size_t kTicketBytes = 16;
}  // namespace

BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config) {
  BackwardSm80Shape shape;
  const int head_dim = problem.head_dim, chunks = head_dim / 8;
  const int rows = config.block_kv / (config.warps / config.query_warps);
  shape.dq_threads = 32 * (config.block_q / kMmaRows);
  shape.dkdv_threads = 32 * config.warps;
  const bool adds = config.dq != DqAccumulation::separate_kernel;
  shape.p_shared = config.query_warps > 1;
  shape.ds_shared = shape.p_shared || adds;

  const auto element_bytes = static_cast<std::size_t>(size_of(problem.dtype));
  const std::size_t row_bytes = element_bytes * static_cast<std::size_t>(head_dim);
  shape.q_tile_bytes = static_cast<std::size_t>(config.block_q) * row_bytes;
  shape.kv_tile_bytes = static_cast<std::size_t>(config.block_kv) * row_bytes;
  const int q = config.block_q, kv = config.block_kv, stages = config.stages;
  SharedLayout& dq = shape.dq_shared;
  dq.add({"kQOffset", "Q", {q, problem.head_dim_qk()}, element_bytes, "   later dQ"});
  dq.add({"kDoOffset", "dO", {q, problem.head_dim_v()}, element_bytes});
  dq.add({"kFirstOffset", "K", {stages, kv, problem.head_dim_qk()}, element_bytes});
  dq.add({"kSecondOffset", "V", {stages, kv, problem.head_dim_v()}, element_bytes});
  SharedLayout& dkdv = shape.dkdv_shared;
  const bool stored = !adds_key_sums(config);
  dkdv.add({"kKOffset", "K", {kv, problem.head_dim_qk()}, element_bytes, stored ? "   later dK" : ""});
  dkdv.add({"kVOffset", "V", {kv, problem.head_dim_v()}, element_bytes, stored ? "   later dV" : ""});
  dkdv.add({"kFirstOffset", "Q", {stages, q, problem.head_dim_qk()}, element_bytes});
  dkdv.add({"kSecondOffset", "dO", {stages, q, problem.head_dim_v()}, element_bytes});
  dkdv.add({"kStatisticsOffset", "LSE and delta", {stages, q, 2}, sizeof(float), ", fp32"});
  if (shape.p_shared) dkdv.add({"kPOffset", "P ", {kv, q}, element_bytes, ", transposed"});
  if (shape.ds_shared) dkdv.add({"kDsOffset", "dS", {kv, q}, element_bytes, ", transposed"});
  if (takes_tickets(config) && shape.ds_shared) dkdv.add_alias("kTicketOffset", "kDsOffset");
  if (takes_tickets(config) && !shape.ds_shared) dkdv.add({"kTicketOffset", "number of the tile", {}, kTicketBytes});

  // fp32 accumulators spread over 32 lanes: S, dP, and the columns of the gradients.
  const auto part_columns = [&](int parts) { return 8 * ceil_div(chunks, parts); };
  shape.dq_registers = kMmaRows * (problem.head_dim_qk() + 2 * config.block_kv) / 32;
  const int key_gradients = 2 * rows * part_columns(config.query_warps) / 32;
  const int scores = 2 * rows * (config.block_q / config.query_warps) / 32;
  shape.dkdv_registers = key_gradients + scores;
  if (adds) {
    // A warp's part of dQ is as square as may be: a product reads its rows and its columns from shared memory.
    for (int row_parts = 1; row_parts <= config.warps; ++row_parts) {
      if (config.warps % row_parts != 0 || config.block_q % (kMmaRows * row_parts) != 0) continue;
      const int dq_rows = config.block_q / row_parts, column_parts = config.warps / row_parts;
      if (shape.dq_rows != 0 &&
          dq_rows + part_columns(column_parts) >= shape.dq_rows + part_columns(shape.dq_column_parts))
        continue;
      shape.dq_rows = dq_rows;
      shape.dq_column_parts = column_parts;
    }
    const int dq = shape.dq_rows * part_columns(shape.dq_column_parts) / 32;
    shape.dkdv_registers = key_gradients + std::max(scores, dq);
  }
  return shape;
}

}  // namespace attune
