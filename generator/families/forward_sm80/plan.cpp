#include "generator/families/forward_sm80/plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/invariance.h"
#include "generator/families/shared/bindings.h"
#include "generator/families/shared/chunk_swizzle.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/rows.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/mask_geometry.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr const char* kEntry = "attune_forward";

ArgumentLayout argument_layout(const AttentionProblem& problem, const KernelConfig& config) {
  Arguments fields;
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v});
  if (config.key_parts == 1) {
    append_pointers(&fields, {Operand::o, Operand::lse});
    append_row_end(&fields, problem);
    append_strides(&fields, {Operand::q, Operand::k, Operand::v, Operand::o});
  } else {
    append(&fields, {Workspace{kPartialO}, Workspace{kPartialStatistics}});
    append_strides(&fields, {Operand::q, Operand::k, Operand::v});
  }
  if (adds_parts_of_keys(problem, config)) fields.push_back(Workspace{kPromotedSums});
  append(&fields, {Scalar::batch, Scalar::heads_q, config.pack_gqa ? Scalar::heads_kv : Scalar::group_size,
                   Scalar::seq_q, Scalar::seq_kv, Scalar::query_tiles});
  append_lengths(&fields, problem);
  append_mask(&fields, problem);
  if (config.key_parts == 1) append_score_unit(&fields, problem);  // of LSE
  append_score_scale(&fields, problem);
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  if (config.key_parts == 1) append_dropout_scale(&fields, problem);
  if (config.tile_order == TileOrder::l2_sections_reversed) fields.push_back(Scalar::section_heads);
  if (config.key_parts != 1) fields.push_back(Scalar::key_parts);
  return ArgumentLayout::of(std::move(fields));
}

}  // namespace

TemplateBindings forward_sm80_bindings(const AttentionProblem& problem, const KernelConfig& config) {
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  const bool whole = config.even_tiles;

  TemplateBindings bindings;
  bind_forward(problem, config, &bindings);
  bindings.set("kv_source", "dense");
  bindings.set("tile_number", config.key_parts != 1 ? "key_part.tile" : "block_index()");
  bindings.conditions["raw_parts"] = problem.invariant && config.key_parts != 1;

  bindings.set("block_q", config.block_q);
  bindings.set("block_kv", config.block_kv);
  bindings.set("warps", config.warps);
  bindings.set("stages", config.stages);
  bindings.set("even_tiles", whole ? "true" : "false");
  bindings.set("partial_blocks", whole && !hides_pairs(problem.mask) && !problem.alibi ? "false" : "true");
  // What a step is told of the rows.
  const bool terms = problem.adds_to_scores() || problem.has_pair_tensors();
  bindings.set("step_rows", terms ? "const QueryTile& tile" : "const Sequence& sequence");
  bindings.set("rows_of_step", terms ? "tile" : "tile.sequence");
  bindings.set("sequence_of_step", terms ? "tile.sequence" : "sequence");
  bindings.set("terms_of_row", initializers(problem,
                                            "AlibiKeys(alibi_slope(args, tile.sequence, tile.head_of(row)), 1.0f, "
                                            "alibi_diagonal(args, tile.sequence, query), first_key)",
                                            "PairRow(args, tile.sequence, tile.head_of(row), query, first_key)"));
  const bool drops = problem.dropout != 0;
  const std::string dropout_of_rows = ", const QueryDropout (&dropout)[kRowTiles]";
  bindings.set("dropout_parameter", drops ? dropout_of_rows : "");
  bindings.set("and_dropout", drops ? ", dropout" : "");
  bindings.set("kept_keys", drops ? ", args, dropout, block" : "");
  bindings.set("kept_parameters", drops ? ", const Arguments& args" + dropout_of_rows + ", i32 block" : "");
  const bool finishes_rows = drops && config.key_parts == 1;
  bindings.set("args_of_share", finishes_rows ? ", const Arguments& args" : "");
  bindings.set("and_args_of_share", finishes_rows ? ", args" : "");
  bindings.set("rescale_threshold", config.rescale_threshold);
  bindings.set("ctas_per_sm", config.ctas_per_sm);
  bindings.set("row_bytes", shape.row_bytes);
  const ChunkSwizzle swizzle = chunk_swizzle(problem.head_dim);
  bindings.set("swizzle_mask", swizzle.mask);
  bindings.set("swizzle_shift", swizzle.shift);
  shape.shared.bind(&bindings);
  bindings.set("kv_tile_bytes", static_cast<std::int64_t>(shape.kv_tile_bytes));

  bindings.set("chunk_access", chunk_access(problem));
  bindings.set("kv_ring", config.stages == 1 ? "kv_ring_single" : "kv_ring");
  bindings.set("gemm_pv", config.promotion_blocks != 0 ? "gemm_pv_promoted" : "gemm_pv");
  bindings.set("query_rows", config.pack_gqa ? "group" : "head");
  bindings.set("query_operand", config.q_in_registers ? "query_registers" : "query_shared");
  return bindings;
}

KeySplit forward_sm80_split(const ForwardSm80Shape& shape, const KernelConfig& config, const DeviceSpec& device) {
  const int ctas = config.key_parts == kFillParts ? forward_sm80_residency(shape, config, device).ctas : 1;
  return key_split(config, device, device.sm_count * ctas, config.block_q / shape.group, shape.group);
}

bool forward_sm80_parts_may_win(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const std::int64_t warps = std::min(config.warps, kSchedulers);
  return key_parts_may_win(
      problem, device, query_tile_count(problem, config.block_q, heads_of_tile(problem, config)) * warps / kSchedulers,
      config.block_kv);
}

KernelLaunch forward_sm80_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target) {
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  KernelLaunch launch;
  launch.entry = kEntry;
  launch.threads = shape.threads;
  launch.shared_bytes = shape.shared.bytes();
  launch.rows_per_tile = config.block_q / shape.group;
  launch.heads_per_tile = shape.group;
  launch.section_bytes = section_bytes(config, device);
  launch.split = forward_sm80_split(shape, config, device);
  launch.arguments = argument_layout(problem, config);
  TemplateBindings bindings = forward_sm80_bindings(problem, config);
  render_launch("forward_sm80", kernel_class(problem, config), device, templates, target, std::move(bindings), &launch);
  return launch;
}

}  // namespace attune
