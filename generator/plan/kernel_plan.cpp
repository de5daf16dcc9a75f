#include "generator/plan/kernel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "generator/error.h"
#include "generator/plan/source_hash.h"
#include "generator/rounding.h"

namespace attune {
namespace {
struct ArgumentFact {
  std::string_view name;
  std::string_view type;
  std::size_t bytes;
};

constexpr std::size_t kTensorMapBytes = 128, kTensorMapAlignment = 64;

ArgumentFact fact(KernelArgument argument) {
  switch (argument) {
    case KernelArgument::q:
      return {"q", "const void*", 8};
    case KernelArgument::k:
      return {"k", "const void*", 8};
    case KernelArgument::v:
      return {"v", "const void*", 8};
    case KernelArgument::o:
      return {"o", "void*", 8};
    case KernelArgument::lse:
      return {"lse", "float*", 8};
    case KernelArgument::q_stride_batch:
      return {"q_stride_batch", "i64", 8};
    case KernelArgument::q_stride_head:
      return {"q_stride_head", "i64", 8};
    case KernelArgument::q_stride_row:
      return {"q_stride_row", "i64", 8};
    case KernelArgument::k_stride_batch:
      return {"k_stride_batch", "i64", 8};
    case KernelArgument::k_stride_head:
      return {"k_stride_head", "i64", 8};
    case KernelArgument::k_stride_row:
      return {"k_stride_row", "i64", 8};
    case KernelArgument::v_stride_batch:
      return {"v_stride_batch", "i64", 8};
    case KernelArgument::v_stride_head:
      return {"v_stride_head", "i64", 8};
    case KernelArgument::v_stride_row:
      return {"v_stride_row", "i64", 8};
    case KernelArgument::o_stride_batch:
      return {"o_stride_batch", "i64", 8};
    case KernelArgument::o_stride_head:
      return {"o_stride_head", "i64", 8};
    case KernelArgument::o_stride_row:
      return {"o_stride_row", "i64", 8};
    case KernelArgument::d_q:
      return {"d_q", "void*", 8};
    case KernelArgument::d_k:
      return {"d_k", "void*", 8};
    case KernelArgument::d_v:
      return {"d_v", "void*", 8};
    case KernelArgument::d_o:
      return {"d_o", "const void*", 8};
    case KernelArgument::d_lse:
      return {"d_lse", "const float*", 8};
    case KernelArgument::statistics:
      return {"statistics", "float*", 8};
    case KernelArgument::d_q_sums:
      return {"d_q_sums", "float*", 8};
    case KernelArgument::turns:
      return {"turns", "u32*", 8};
    case KernelArgument::d_k_sums:
      return {"d_k_sums", "float*", 8};
    case KernelArgument::d_v_sums:
      return {"d_v_sums", "float*", 8};
    case KernelArgument::key_turns:
      return {"key_turns", "u32*", 8};
    case KernelArgument::scores:
      return {"scores", "float*", 8};
    case KernelArgument::o_blocks:
      return {"o_blocks", "float*", 8};
    case KernelArgument::row_states:
      return {"row_states", "float*", 8};
    case KernelArgument::d_q_stride_batch:
      return {"d_q_stride_batch", "i64", 8};
    case KernelArgument::d_q_stride_head:
      return {"d_q_stride_head", "i64", 8};
    case KernelArgument::d_q_stride_row:
      return {"d_q_stride_row", "i64", 8};
    case KernelArgument::d_k_stride_batch:
      return {"d_k_stride_batch", "i64", 8};
    case KernelArgument::d_k_stride_head:
      return {"d_k_stride_head", "i64", 8};
    case KernelArgument::d_k_stride_row:
      return {"d_k_stride_row", "i64", 8};
    case KernelArgument::d_v_stride_batch:
      return {"d_v_stride_batch", "i64", 8};
    case KernelArgument::d_v_stride_head:
      return {"d_v_stride_head", "i64", 8};
    case KernelArgument::d_v_stride_row:
      return {"d_v_stride_row", "i64", 8};
    case KernelArgument::d_o_stride_batch:
      return {"d_o_stride_batch", "i64", 8};
    case KernelArgument::d_o_stride_head:
      return {"d_o_stride_head", "i64", 8};
    case KernelArgument::d_o_stride_row:
      return {"d_o_stride_row", "i64", 8};
    case KernelArgument::o_fp64:
      return {"o_fp64", "double*", 8};
    case KernelArgument::lse_fp64:
      return {"lse_fp64", "double*", 8};
    case KernelArgument::weight_fp64:
      return {"weight_fp64", "double*", 8};
    case KernelArgument::d_q_fp64:
      return {"d_q_fp64", "double*", 8};
    case KernelArgument::d_k_fp64:
      return {"d_k_fp64", "double*", 8};
    case KernelArgument::d_v_fp64:
      return {"d_v_fp64", "double*", 8};
    case KernelArgument::row_statistics:
      return {"row_statistics", "double*", 8};
    case KernelArgument::batch:
      return {"batch", "i32", 4};
    case KernelArgument::heads_q:
      return {"heads_q", "i32", 4};
    case KernelArgument::heads_kv:
      return {"heads_kv", "i32", 4};
    case KernelArgument::group_size:
      return {"group_size", "i32", 4};
    case KernelArgument::seq_q:
      return {"seq_q", "i32", 4};
    case KernelArgument::seq_kv:
      return {"seq_kv", "i32", 4};
    case KernelArgument::query_tiles:
      return {"query_tiles", "i32", 4};
    case KernelArgument::key_tiles:
      return {"key_tiles", "i32", 4};
    case KernelArgument::section_heads:
      return {"section_heads", "i32", 4};
    case KernelArgument::mask_offset:
      return {"mask_offset", "i32", 4};
    case KernelArgument::softmax_scale:
      return {"softmax_scale", "float", 4};
    case KernelArgument::softmax_scale_log2:
      return {"softmax_scale_log2", "float", 4};
    case KernelArgument::tiles:
      return {"tiles", "i32", 4};
    case KernelArgument::tile_counter:
      return {"tile_counter", "u32*", 8};
    case KernelArgument::recomputed_blocks:
      return {"recomputed_blocks", "u32*", 8};
    case KernelArgument::q_map:
      return {"q_map", "TensorMap", kTensorMapBytes};
    case KernelArgument::k_map:
      return {"k_map", "TensorMap", kTensorMapBytes};
    case KernelArgument::v_map:
      return {"v_map", "TensorMap", kTensorMapBytes};
    case KernelArgument::o_map:
      return {"o_map", "TensorMap", kTensorMapBytes};
    case KernelArgument::unit_roundoff:
      return {"unit_roundoff", "double", 8};
    case KernelArgument::smallest_step:
      return {"smallest_step", "double", 8};
    case KernelArgument::partials:
      return {"partials", "void*", 8};
    case KernelArgument::elements:
      return {"elements", "u16*", 8};
    case KernelArgument::element_count:
      return {"element_count", "i64", 8};
    case KernelArgument::copies:
      return {"copies", "i64", 8};
    case KernelArgument::copy_stride:
      return {"copy_stride", "i64", 8};
    case KernelArgument::seed:
      return {"seed", "u64", 8};
  }
  throw Error(ErrorCode::internal, fmt::format("kernel argument {} is unknown", static_cast<int>(argument)));
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

std::string_view to_string(Operand operand) {
  switch (operand) {
    case Operand::q:
      return "q";
    case Operand::k:
      return "k";
    case Operand::v:
      return "v";
    case Operand::o:
      return "o";
    case Operand::lse:
      return "lse";
    case Operand::d_q:
      return "dq";
    case Operand::d_k:
      return "dk";
    case Operand::d_v:
      return "dv";
    case Operand::d_o:
      return "do";
    case Operand::d_lse:
      return "dlse";
  }
  return "";
}

std::string_view to_string(KernelArgument argument) { return fact(argument).name; }
std::string_view type_text(KernelArgument argument) { return fact(argument).type; }
std::size_t size_of(KernelArgument argument) { return fact(argument).bytes; }

ArgumentLayout ArgumentLayout::of(std::vector<KernelArgument> fields) {
  ArgumentLayout layout;
  std::set<KernelArgument> seen;
  for (const KernelArgument field : fields) {
    if (!seen.insert(field).second) {
      throw Error(ErrorCode::internal, fmt::format("kernel argument {} appears twice in a layout", to_string(field)));
    }
    const std::size_t bytes = size_of(field);
    const std::size_t alignment = std::min(bytes, kTensorMapAlignment);  // others are aligned to their size
    layout.offsets.push_back(round_up(layout.bytes, alignment));
    layout.bytes = layout.offsets.back() + bytes;
    layout.alignment = std::max(layout.alignment, alignment);
  }
  layout.bytes = round_up(layout.bytes, layout.alignment);
  layout.fields = std::move(fields);
  return layout;
}

std::int32_t KernelLaunch::query_tiles(const AttentionProblem& problem) const {
  return static_cast<std::int32_t>(ceil_div(problem.seq_q, rows_per_tile));
}

std::int32_t KernelLaunch::key_tiles(const AttentionProblem& problem) const {
  return static_cast<std::int32_t>(ceil_div(problem.seq_kv, rows_per_tile));
}

std::int32_t KernelLaunch::section_heads(const AttentionProblem& problem) const {
  // Heads that no section divides: those that share K and V, or, apart, each of them.
  const std::int64_t whole_heads = problem.batch * (heads_apart ? problem.heads_q : problem.heads_kv);
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
  const std::int64_t heads =
      of_keys && !heads_apart ? problem.batch * problem.heads_kv : problem.batch * problem.heads_q / heads_per_tile;
  const std::int64_t tiles = of_keys ? key_tiles(problem) : tile_rows == TileRows::all ? 1 : query_tiles(problem);
  if (tiles > kMaxGrid / heads_per_tile / rows_per_tile && heads_per_tile > 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} queries of {} heads are more rows than a kernel that packs them "
                            "can count; take another config",
                            problem.seq_q, heads_per_tile));
  }
  if (heads > kMaxGrid || tiles > kMaxGrid / cluster / heads) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} tiles of {} {} times {} heads are more than the {} of a launch; split the batch", tiles,
                            rows_per_tile, of_keys ? "keys" : "queries", heads, kMaxGrid / cluster));
  }
  return static_cast<std::uint32_t>(tiles * heads);
}

std::size_t WorkspaceBuffer::bytes_of(const AttentionProblem& problem) const {
  const bool of_keys = rows_of == TileRows::keys;
  const std::int64_t heads = problem.batch * (of_keys ? problem.heads_kv : problem.heads_q);
  const std::int64_t parts = heads * ceil_div(of_keys ? problem.seq_kv : problem.seq_q, rows);
  if (!of_scores) return bytes * static_cast<std::size_t>(parts);
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
  const std::int64_t keys = round_up(problem.seq_kv, kScoreRowKeys);
  const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * keys;
  if (parts > kMostBytes / row_bytes) {
    throw Error(ErrorCode::unsupported,
                fmt::format("the scores of \"{}\" would take more than 2^60 bytes", canonical_text(problem)));
  }
  return static_cast<std::size_t>(row_bytes * parts);
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
    if (buffer.zeroed) zeroed = buffer_offset(buffer.argument, launched) + buffer.bytes_of(launched);
  }
  return zeroed;
}

std::size_t KernelPlan::buffer_offset(KernelArgument argument, const AttentionProblem& launched) const {
  std::size_t end = workspace_bytes;
  for (const WorkspaceBuffer& buffer : buffers) {
    const std::size_t begin = round_up(end, kWorkspaceAlignment);
    if (buffer.argument == argument) return begin;
    end = begin + buffer.bytes_of(launched);
  }
  throw Error(ErrorCode::internal, fmt::format("the plan has no workspace for {}", to_string(argument)));
}

std::string_view to_string(KernelTarget target) { return target == KernelTarget::cuda ? "cuda" : "emulator"; }

}  // namespace attune
