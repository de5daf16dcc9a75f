#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/attention_problem.h"

namespace attune {

constexpr int kMmaRows = 16;  ///< queries or keys of an instruction's result
/// Keys that a warp of the kernel of key tiles may own.
constexpr int kKeysOfBackwardWarp[] = {16, 32, 48};
/// What a config's fields may be at most.
constexpr int kMaxBackwardBlock = 128, kMaxBackwardWarps = 8;

/// What follows from a config and a head dim for the kernels of a backward plan of the sm80 family. Pure arithmetic.
/// They use block_q, block_kv, warps and query_warps of a config (in the kernel of key tiles, query_warps warps own the
/// same query_warps * block_kv / warps keys), stages, ctas_per_sm, tile_order, kv_grad_per_query_head, query_parts,
/// dq_first and dq. The separate kernel for dQ has a warp for each 16 of block_q. Assumes fields that pass the first
/// checks of backward_sm80_infeasibility().
struct BackwardSm80Shape {
  int dq_threads = 0, dkdv_threads = 0;
  std::size_t q_tile_bytes = 0, kv_tile_bytes = 0;
  SharedLayout dq_shared, dkdv_shared;  ///< of the kernel of its own for dQ, of the kernel of key tiles
  bool p_shared = false, ds_shared = false;
  int dq_rows = 0, dq_column_parts = 0;  ///< of a block's dQ in the kernel of key tiles: a warp's queries; parts of D
  int dq_registers = 0, dkdv_registers = 0;  ///< of a thread: accumulators, which cannot live elsewhere
};
BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
