#include "generator/plan/kernel_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/error.h"
#include "generator/plan/launch_rules.h"
#include "generator/plan/source_hash.h"
#include "generator/plan/tensor_strides.h"
#include "generator/rounding.h"

namespace attune {
namespace {

std::int32_t to_int32(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

std::int32_t KernelLaunch::query_tiles(const AttentionProblem& problem) const {
  return to_int32(query_tiles_of(launch_rules::launch_of(*this, problem), launch_rules::sizes_of(problem)));
}

std::int32_t KernelLaunch::key_tiles(const AttentionProblem& problem) const {
  return to_int32(key_tiles_of(launch_rules::launch_of(*this, problem), launch_rules::sizes_of(problem)));
}

std::int32_t KernelLaunch::section_heads(const AttentionProblem& problem) const {
  return to_int32(section_heads_of(launch_rules::launch_of(*this, problem), launch_rules::sizes_of(problem)));
}

std::uint32_t KernelLaunch::grid_x(const AttentionProblem& problem) const {
  const std::uint32_t all = tiles(problem) * static_cast<std::uint32_t>(cluster);
  return max_ctas > 0 ? std::min(all, static_cast<std::uint32_t>(max_ctas)) : all;
}

std::uint32_t KernelLaunch::tiles(const AttentionProblem& problem) const {
  const launch_rules::Launch launch = launch_rules::launch_of(*this, problem);
  const launch_rules::Call call = launch_rules::call_of(problem, split);
  if (launch_rules::has_too_many_packed_rows(launch, call)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} queries of {} heads are more rows than a kernel that packs them "
                            "can count; take another config",
                            problem.seq_q, heads_per_tile));
  }
  const std::int64_t tiles = launch_rules::tiles_of(launch, call);
  if (tiles == launch_rules::kTooManyTiles) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{} tiles of {} {} times {} heads are more than the {} of a launch; split the batch",
                    launch_rules::tiles_of_head(launch, call), rows_per_tile,
                    tile_rows == TileRows::keys ? "keys" : "queries", launch_rules::heads_of_tiles(launch, call),
                    launch_rules::kMostCtas / cluster / launch_rules::parts_of(launch.split, call)));
  }
  return static_cast<std::uint32_t>(tiles);
}

std::size_t WorkspaceBuffer::bytes_of(const AttentionProblem& problem) const {
  if (copied) {
    const OperandShape shape = operand_shape(problem, *copied);
    return static_cast<std::size_t>(shape.all_rows() * copy_strides(shape).row) *
           static_cast<std::size_t>(size_of(shape.element));
  }
  if (!of_scores) {
    const launch_rules::Call call = launch_rules::call_of(problem, split);
    return static_cast<std::size_t>(launch_rules::bytes_of(launch_rules::buffer_of(*this), call));
  }
  const std::int64_t tiles = problem.batch * problem.heads_q * ceil_div(problem.seq_q, rows);
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
  const std::int64_t keys = round_up(problem.seq_kv, kScoreRowKeys);
  const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * keys;
  if (tiles > kMostBytes / row_bytes) {
    throw Error(ErrorCode::unsupported,
                fmt::format("the scores of \"{}\" would take more than 2^60 bytes", canonical_text(problem)));
  }
  return static_cast<std::size_t>(row_bytes * tiles);
}

std::string KernelPlan::source_hash() const {
  if (launches.size() == 1) return launches.front().source_hash;
  std::string hashes;
  for (const KernelLaunch& launch : launches) hashes += launch.source_hash + '\n';
  return hash_of_text(hashes);
}

std::size_t KernelPlan::workspace_bytes_of(const AttentionProblem& launched) const {
  std::size_t end = workspace_bytes;
  for (const WorkspaceBuffer& buffer : buffers) end = round_up(end, kWorkspaceAlignment) + buffer.bytes_of(launched);
  return end;
}

std::size_t KernelPlan::zeroed_bytes_of(const AttentionProblem& launched) const {
  std::size_t zeroed = workspace_zeroed ? workspace_bytes : 0;
  for (const WorkspaceBuffer& buffer : buffers) {
    if (buffer.zeroed) zeroed = buffer_offset(buffer.buffer, launched) + buffer.bytes_of(launched);
  }
  return zeroed;
}

std::variant<std::int32_t, float> value_of(Scalar scalar, const AttentionProblem& problem, const KernelLaunch& launch) {
  const auto of = [&] { return launch_rules::launch_of(launch, problem); };
  const auto call = [&] { return launch_rules::sizes_of(problem); };
  switch (scalar) {
    case Scalar::batch:
      return to_int32(batch_of(of(), call()));
    case Scalar::heads_q:
      return to_int32(heads_q_of(of(), call()));
    case Scalar::heads_kv:
      return to_int32(heads_kv_of(of(), call()));
    case Scalar::group_size:
      return to_int32(group_size_of(of(), call()));
    case Scalar::bias_batch:
      return to_int32(bias_batch_of(of(), call()));
    case Scalar::bias_heads:
      return to_int32(bias_heads_of(of(), call()));
    case Scalar::bias_rows:
      return to_int32(bias_rows_of(of(), call()));
    case Scalar::attention_mask_batch:
      return to_int32(attention_mask_batch_of(of(), call()));
    case Scalar::attention_mask_heads:
      return to_int32(attention_mask_heads_of(of(), call()));
    case Scalar::attention_mask_rows:
      return to_int32(attention_mask_rows_of(of(), call()));
    case Scalar::max_seq_q:
      return to_int32(max_seq_q_of(of(), call()));
    case Scalar::max_seq_kv:
      return to_int32(max_seq_kv_of(of(), call()));
    case Scalar::dropout_bytes:
      return to_int32(dropout_bytes_of(of(), call()));
    case Scalar::dropout_join:
      return to_int32(dropout_join_of(of(), call()));
    case Scalar::dropout_part:
      return to_int32(dropout_part_of(of(), call()));
    case Scalar::dropout:
      return dropout_of(of(), call());
    case Scalar::dropout_scale:
      return dropout_scale_of(of(), call());
    case Scalar::seq_q:
      return to_int32(seq_q_of(of(), call()));
    case Scalar::seq_kv:
      return to_int32(seq_kv_of(of(), call()));
    case Scalar::query_tiles:
      return to_int32(query_tiles_of(of(), call()));
    case Scalar::key_tiles:
      return to_int32(key_tiles_of(of(), call()));
    case Scalar::section_heads:
      return to_int32(section_heads_of(of(), call()));
    case Scalar::first_offset:
      return to_int32(first_offset_of(of(), launch_rules::call_of(problem)));
    case Scalar::mask_offset:
      return to_int32(mask_offset_of(of(), launch_rules::call_of(problem)));
    case Scalar::diagonals_move:
      return to_int32(diagonals_move_of(of(), call()));
    case Scalar::softmax_scale:
      return softmax_scale_of(of(), call());
    case Scalar::softmax_scale_log2:
      return softmax_scale_log2_of(of(), call());
    case Scalar::softcap:
      return softcap_of(of(), call());
    case Scalar::tanh_scale:
      return tanh_scale_of(of(), call());
    case Scalar::tiles:
      return to_int32(launch.tiles(problem));
    case Scalar::key_parts:
      return to_int32(key_parts_of(of(), launch_rules::call_of(problem, launch.split)));
  }
  throw Error(ErrorCode::internal, fmt::format("scalar {} is unknown", static_cast<int>(scalar)));
}

std::size_t KernelPlan::buffer_offset(const Buffer& buffer, const AttentionProblem& launched) const {
  std::size_t end = workspace_bytes;
  for (const WorkspaceBuffer& each : buffers) {
    const std::size_t begin = round_up(end, kWorkspaceAlignment);
    if (each.buffer == buffer) return begin;
    end = begin + each.bytes_of(launched);
  }
  throw Error(ErrorCode::internal, fmt::format("the plan has no workspace for {}", buffer.name));
}

std::string_view to_string(KernelTarget target) { return target == KernelTarget::cuda ? "cuda" : "emulator"; }

}  // namespace attune
