#include "generator/plan/kernel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "generator/error.h"
#include "generator/plan/source_hash.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// Lengths have 31 bits, so that an offset beyond them hides all keys or none, as its nearest 32-bit value does.
std::int64_t clamped_offset(std::int64_t offset) {
  using Limits = std::numeric_limits<std::int32_t>;
  return std::clamp<std::int64_t>(offset, Limits::min(), Limits::max());
}

// Of sections of half of `fit` heads to `fit`: those whose last one holds most. With few heads in it, its longest tiles
// would begin when little else is left to do, and end alone.
std::int64_t fullest_last_section(std::int64_t heads, std::int64_t fit) {
  std::int64_t best = fit;
  double most = 0;
  for (std::int64_t size = (fit + 1) / 2; size <= fit; ++size) {
    const std::int64_t last = (heads - 1) % size + 1;
    const double fill = static_cast<double>(last) + static_cast<double>(last) / static_cast<double>(size);
    if (fill < most) continue;
    best = size;
    most = fill;
  }
  return best;
}

}  // namespace

std::int32_t KernelLaunch::query_tiles(const AttentionProblem& problem) const {
  return static_cast<std::int32_t>(ceil_div(problem.seq_q, rows_per_tile));
}

std::int32_t KernelLaunch::key_tiles(const AttentionProblem& problem) const {
  return static_cast<std::int32_t>(ceil_div(problem.seq_kv, rows_per_tile));
}

std::int32_t KernelLaunch::section_heads(const AttentionProblem& problem) const {
  // Heads that no section divides: those that share K and V, or, apart, each of them.
  const std::int64_t whole_heads = problem.batch * (kv_grad_per_query_head ? problem.heads_q : problem.heads_kv);
  const bool of_keys = tile_rows == TileRows::keys;
  // Tiles of keys that begin together walk through the query heads of their group in step: one of these is in L2.
  const std::int64_t element_bytes = 2 * size_of(problem.dtype) + (of_keys ? static_cast<int>(sizeof(float)) : 0);
  const std::int64_t head_bytes = (of_keys ? problem.seq_q : problem.seq_kv) * problem.head_dim * element_bytes;
  const std::int64_t fit = std::max<std::int64_t>(1, static_cast<std::int64_t>(section_bytes) / head_bytes);
  if (of_keys)
    return static_cast<std::int32_t>(whole_heads <= fit ? whole_heads : fullest_last_section(whole_heads, fit));
  const std::int64_t sections = ceil_div(whole_heads, fit), group = problem.heads_q / problem.heads_kv;
  return static_cast<std::int32_t>(ceil_div(whole_heads, sections) * (group / heads_per_tile));
}

std::uint32_t KernelLaunch::grid_x(const AttentionProblem& problem) const {
  const std::uint32_t all = tiles(problem) * static_cast<std::uint32_t>(cluster);
  return max_ctas > 0 ? std::min(all, static_cast<std::uint32_t>(max_ctas)) : all;
}

std::uint32_t KernelLaunch::tiles(const AttentionProblem& problem) const {
  constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();
  const bool of_keys = tile_rows == TileRows::keys;
  if (tile_rows == TileRows::following)
    return static_cast<std::uint32_t>(ceil_div(problem.batch * problem.heads_q * problem.seq_q, rows_per_tile));
  const std::int64_t heads = of_keys && !kv_grad_per_query_head ? problem.batch * problem.heads_kv
                                                                : problem.batch * problem.heads_q / heads_per_tile;
  const std::int64_t tiles = of_keys ? key_tiles(problem) : tile_rows == TileRows::all ? 1 : query_tiles(problem);
  if (tiles > kMaxGrid / heads_per_tile / rows_per_tile && heads_per_tile > 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} queries of {} heads are more rows than a kernel that packs them "
                            "can count; take another config",
                            problem.seq_q, heads_per_tile));
  }
  const std::int64_t parts = split.parts_of(problem);
  if (heads > kMaxGrid || tiles > kMaxGrid / cluster / parts / heads) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} tiles of {} {} times {} heads are more than the {} of a launch; split the batch", tiles,
                            rows_per_tile, of_keys ? "keys" : "queries", heads, kMaxGrid / cluster / parts));
  }
  return static_cast<std::uint32_t>(tiles * heads * parts);
}

std::size_t WorkspaceBuffer::bytes_of(const AttentionProblem& problem) const {
  const bool of_keys = rows_of == TileRows::keys;
  const std::int64_t heads = problem.batch * (of_keys ? problem.heads_kv : problem.heads_q);
  const std::int64_t tiles = heads * ceil_div(of_keys ? problem.seq_kv : problem.seq_q, rows);
  if (!of_scores) return bytes * static_cast<std::size_t>(tiles) * static_cast<std::size_t>(split.parts_of(problem));
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
  const auto integer = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  switch (scalar) {
    case Scalar::batch:
      return integer(problem.batch);
    case Scalar::heads_q:
      return integer(problem.heads_q);
    case Scalar::heads_kv:
      return integer(problem.heads_kv);
    case Scalar::group_size:
      return integer(problem.heads_q / problem.heads_kv);
    case Scalar::seq_q:
      return integer(problem.seq_q);
    case Scalar::seq_kv:
      return integer(problem.seq_kv);
    case Scalar::query_tiles:
      return launch.query_tiles(problem);
    case Scalar::key_tiles:
      return launch.key_tiles(problem);
    case Scalar::section_heads:
      return launch.section_heads(problem);
    case Scalar::first_offset:
      return integer(clamped_offset(MaskGeometry(problem).first_diagonal));
    case Scalar::mask_offset:
      return integer(clamped_offset(problem.mask_offset));
    case Scalar::softmax_scale:
      return problem.softmax_scale;
    case Scalar::softmax_scale_log2:
      return problem.softmax_scale * kLog2E;
    case Scalar::tiles:
      return integer(launch.tiles(problem));
    case Scalar::key_parts:
      return launch.split.parts_of(problem);
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
