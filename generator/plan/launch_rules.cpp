#include "generator/plan/launch_rules.h"

#include "generator/config/kernel_config.h"
#include "generator/plan/key_split.h"
#include "generator/problem/mask_geometry.h"

namespace attune::launch_rules {
namespace {

static_assert(kFill == kFillParts && kMostParts == kMostKeyParts);
static_assert(launch_rules::kOpenDiagonal == attune::kOpenDiagonal);
static_assert(launch_rules::kWorkspaceAlignment == attune::kWorkspaceAlignment);

Rows rows_of(TileRows rows) {
  switch (rows) {
    case TileRows::queries:
      return Rows::queries;
    case TileRows::keys:
      return Rows::keys;
    case TileRows::all:
      return Rows::all;
    case TileRows::following:
      return Rows::following;
  }
  return Rows::queries;
}

}  // namespace

Call call_of(const AttentionProblem& problem) {
  const MaskGeometry mask(problem);
  return {problem.batch,  problem.heads_q,     problem.heads_kv,   problem.seq_q,
          problem.seq_kv, mask.first_diagonal, mask.last_diagonal, problem.softmax_scale};
}

Split split_of(const KeySplit& split) {
  return {split.parts, split.slots, split.tile_queries, split.tile_heads, split.least_keys, split.most_rows};
}

Launch launch_of(const KernelLaunch& launch, const AttentionProblem& problem) {
  return {rows_of(launch.tile_rows),
          launch.rows_per_tile,
          launch.heads_per_tile,
          launch.kv_grad_per_query_head,
          launch.cluster,
          launch.max_ctas,
          static_cast<std::int64_t>(launch.section_bytes),
          problem.head_dim,
          size_of(problem.dtype),
          split_of(launch.split)};
}

Buffer buffer_of(const WorkspaceBuffer& buffer) {
  return {static_cast<std::int64_t>(buffer.bytes), buffer.rows, buffer.rows_of == TileRows::keys,
          split_of(buffer.split)};
}

}  // namespace attune::launch_rules
