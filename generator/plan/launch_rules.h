#pragma once

#include <algorithm>
#include <cstdint>

#include "generator/config/kernel_config.h"
#include "generator/plan/kernel_plan.h"
#include "generator/plan/key_split.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"

/// The arithmetic of a launch, of plain numbers. It is a template, since exported launchers hold the very same text.
/// Only the generator's own sources include it.
namespace attune::launch_rules {

#include "templates/export/launch_rules.cu"
//
#include "templates/export/launch_dropout.cu"

static_assert(kFill == kFillParts && kFixed == kFixedParts && kMostParts == kMostKeyParts);
static_assert(launch_rules::kOpenDiagonal == attune::kOpenDiagonal);
static_assert(launch_rules::kWorkspaceAlignment == attune::kWorkspaceAlignment && launch_rules::kOnce == attune::kOnce);
static_assert(static_cast<int>(Rows::queries) == static_cast<int>(TileRows::queries) &&
              static_cast<int>(Rows::keys) == static_cast<int>(TileRows::keys) &&
              static_cast<int>(Rows::all) == static_cast<int>(TileRows::all) &&
              static_cast<int>(Rows::of_batch) == static_cast<int>(TileRows::of_batch) &&
              static_cast<int>(Rows::following) == static_cast<int>(TileRows::following) &&
              static_cast<int>(Rows::pairs) == static_cast<int>(TileRows::pairs));

// Inline, so that of what is copied here nothing is left but what a rule reads: each call of the library asks often.

/// A call that looks at no mask.
inline Call sizes_of(const AttentionProblem& problem) {
  const PairDimensions bias = dimensions_of(problem.bias), mask = dimensions_of(problem.attention_mask);
  return {problem.batch,
          problem.heads_q,
          problem.heads_kv,
          problem.seq_q,
          problem.seq_kv,
          -attune::kOpenDiagonal,
          attune::kOpenDiagonal,
          problem.softmax_scale,
          problem.softcap,
          problem.lengths == Lengths::used,
          problem.packed,
          bias.batch ? problem.batch : 1,
          bias.heads ? problem.heads_q : 1,
          bias.queries ? problem.pair_queries() : 1,
          mask.batch ? problem.batch : 1,
          mask.heads ? problem.heads_q : 1,
          mask.queries ? problem.pair_queries() : 1,
          problem.max_seq_q,
          problem.max_seq_kv,
          problem.dropout};
}

inline Call call_of(const AttentionProblem& problem) {
  const MaskGeometry mask(problem);
  Call call = sizes_of(problem);
  call.first_diagonal = mask.first_diagonal;
  call.last_diagonal = mask.last_diagonal;
  return call;
}

/// For what depends on the mask by the number of parts alone, if at all.
inline Call call_of(const AttentionProblem& problem, const KeySplit& split) {
  return split.parts == kFill ? call_of(problem) : sizes_of(problem);
}

inline Split split_of(const KeySplit& split) {
  return {split.parts, split.slots, split.tile_queries, split.tile_heads, split.least_keys, split.most_rows};
}

inline Launch launch_of(const KernelLaunch& launch, const AttentionProblem& problem) {
  return {static_cast<Rows>(launch.tile_rows),
          launch.rows_per_tile,
          launch.heads_per_tile,
          launch.kv_grad_per_query_head,
          launch.cluster,
          launch.max_ctas,
          static_cast<std::int64_t>(launch.section_bytes),
          launch.section_tiles,
          problem.head_dim,
          size_of(problem.dtype),
          split_of(launch.split)};
}

inline Buffer buffer_of(const WorkspaceBuffer& buffer) {
  return {static_cast<std::int64_t>(buffer.bytes), buffer.rows, buffer.rows_of == TileRows::keys,
          split_of(buffer.split), buffer.keys};
}

}  // namespace attune::launch_rules
