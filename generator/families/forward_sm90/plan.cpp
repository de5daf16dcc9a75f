#include "generator/families/forward_sm90/plan.h"

#include <fmt/format.h>

#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/families/invariance.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/bindings.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"
#include "generator/families/shared/wgmma_shapes.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/mask_geometry.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr const char* kEntry = "attune_forward";
constexpr std::size_t kCounterBytes = kTileCounterOffset + sizeof(std::uint32_t);  // the number of the next tile

// Whether sums over a row leave the registers, to be added up in the workspace.
bool adds_sums(const AttentionProblem& problem, const KernelConfig& config) {
  return config.promotion_blocks != 0 || adds_parts_of_keys(problem, config);
}

ArgumentLayout argument_layout(const AttentionProblem& problem, const KernelConfig& config) {
  Arguments fields = {TensorMap{Operand::q}, TensorMap{Operand::k}, TensorMap{Operand::v}};
  if (config.key_parts == 1) {
    append_pointers(&fields, {Operand::o, Operand::lse});
    append_row_end(&fields, problem);
    append_strides(&fields, {Operand::o});
  } else {
    append(&fields, {Workspace{kPartialO}, Workspace{kPartialStatistics}});
  }
  if (config.tile_scheduler == TileScheduler::dynamic_persistent) fields.push_back(Workspace{kTileCounter});
  if (adds_sums(problem, config)) fields.push_back(Workspace{kPromotedSums});
  append(&fields, {Scalar::batch, Scalar::heads_q, config.pack_gqa ? Scalar::heads_kv : Scalar::group_size,
                   Scalar::seq_q, Scalar::seq_kv, Scalar::query_tiles, Scalar::tiles});
  append_lengths(&fields, problem);
  append_mask(&fields, problem);
  if (config.key_parts == 1) append_score_unit(&fields, problem);  // of LSE
  append_score_scale(&fields, problem);
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  if (config.key_parts == 1) append_dropout_scale(&fields, problem);
  if (config.tile_order == TileOrder::l2_sections_reversed) fields.push_back(Scalar::section_heads);
  if (config.key_parts != 1) fields.push_back(Scalar::key_parts);
  if (config.pair_stages > 0) append_pair_maps(&fields, problem);
  append_visible_blocks(&fields, config);
  return ArgumentLayout::of(std::move(fields));
}

// What struct Barriers is made of.
void bind_barriers(const BarrierLayout& layout, bool passed_numbers, bool clustered, TemplateBindings* bindings) {
  auto& rings = bindings->lists["rings"];
  bindings->conditions["passed_numbers"] = passed_numbers;
  for (const BarrierLayout::Ring& ring : layout.rings) {
    if (ring.stages == 0) continue;
    // Who copies pairs learns of the tile from its record, or from its Q, and says when it has read that. Buffers of K
    // and V are left by all consumers of a cluster.
    const BarrierLayout::Ring& tiles = layout.records().stages > 0 ? layout.records() : layout.q();
    const bool names_tiles = &ring == &tiles && (passed_numbers || layout.records().stages > 0);
    const bool by_loader = names_tiles && layout.pairs().stages > 0;
    const bool by_cluster = clustered && (&ring == &layout.k() || &ring == &layout.v());
    const char* const also = by_loader ? " + 1" : by_cluster ? " * kCluster" : "";
    rings.push_back({{"name", ring.name},
                     {"leavers", std::string("kConsumerWarps") + also},
                     {"stages", std::to_string(ring.stages)},
                     {"full", std::to_string(ring.full)},
                     {"empty", std::to_string(ring.empty)}});
  }
  bindings->set("passing", layout.passing);
  bindings->set("tile_numbers", layout.tile_numbers);
  bindings->set("asked", layout.asked);
  bindings->set("tile_records", layout.tile_records);
  bindings->set("tile_record_count", layout.records().stages);
  bindings->set("finder_words", layout.records().stages > 0 ? ", and one warp finds out what the tiles are" : "");
}

// What copies tiles of tensors of pairs, and the terms that read them.
void bind_pair_tiles(const AttentionProblem& problem, const ForwardSm90Shape& shape, const KernelConfig& config,
                     TemplateBindings* bindings) {
  const PairTiles& tiles = shape.pair_tiles;
  const bool biased = problem.bias != PairTensor::none, masked = problem.attention_mask != PairTensor::none;
  tiles.bind(problem, config.pair_stages, bindings);
  bindings->conditions["pair_tiles"] = tiles.any();
  bindings->conditions["pairs_ahead"] = shape.pairs_ahead;
  bindings->set("pair_words", tiles.any() ? ", another one tiles of tensors of pairs" : "");
  bindings->conditions["terms_of_rows"] = bindings->conditions.at("score_terms") && !tiles.any();
  bindings->set("values_of_pair",
                std::string(biased ? ", elements.bias(i)" : "") + (masked ? ", elements.attends(i)" : ""));
  bindings->conditions["row_heads_of_terms"] = problem.alibi || (problem.has_pair_tensors() && !tiles.any());
}

std::string mainloop_partial(const KernelConfig& config) {
  if (config.warpgroup_order == WarpgroupOrder::ping_pong) return "ping_pong";
  return config.overlap == Overlap::none ? "serial" : "overlapped";
}

std::string text_of(bool value) { return value ? "true" : "false"; }

// What a row's ScoreTerms are made from.
void bind_terms_of_row(const AttentionProblem& problem, const KernelConfig& config, bool alibi_shared,
                       bool alibi_beyond, TemplateBindings* bindings) {
  bindings->set("row_heads", config.pack_gqa ? 2 : 1);
  const std::string pairs = "PairRow(args, rows.sequence, rows.heads[half % kRowHeads], query, first_key)";
  const std::string alibi = fmt::format(
      "AlibiKeys(rows.slopes[half % kRowHeads], {}, alibi_diagonal(args, rows.sequence, query){}, first_key)",
      alibi_beyond ? "rows.side_of(block)" : "1.0f", alibi_shared ? ", rows.origin" : "");
  bindings->set("terms_of_row", config.pair_stages > 0 ? alibi : initializers(problem, alibi, pairs));
}

int persistent_ctas(const KernelConfig& config, const DeviceSpec& device) {
  return device.sm_count * config.ctas_per_sm / config.cluster * config.cluster;
}

// Those of CTAs that stay.
WorkspaceBuffer promoted_sums(const AttentionProblem& problem, int rows) {
  return {.buffer = kPromotedSums, .bytes = promoted_sums_bytes(problem, rows), .rows = kOnce};
}

}  // namespace

void describe_forward_sm90_workspace(const KernelConfig& config, const DeviceSpec& device, KernelPlan* plan) {
  if (adds_sums(plan->problem, config))
    plan->buffers.push_back(promoted_sums(plan->problem, persistent_ctas(config, device) * config.block_q));
  if (config.tile_scheduler == TileScheduler::dynamic_persistent) plan->workspace_bytes = kCounterBytes;
  plan->workspace_zeroed = plan->workspace_bytes != 0;
}

std::size_t forward_sm90_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device) {
  KernelPlan plan;
  plan.problem = problem;
  plan.workspace_bytes = kCounterBytes;
  if (has_long_rows(problem) || problem.invariant)
    plan.buffers.push_back(promoted_sums(problem, kPromotedRowsPerSm * device.sm_count));
  add_most_partial_results(problem, device, &plan);
  add_most_visible_blocks(BlockWalk::keys, &plan);
  add_most_copied_pairs(&plan);
  return plan.workspace_bytes_of(problem);
}

TemplateBindings forward_sm90_bindings(const AttentionProblem& problem, const KernelConfig& config,
                                       const DeviceSpec& device, KernelTarget target) {
  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  TemplateBindings bindings;
  bind_forward(problem, config, &bindings);
  bindings.set("kv_source", bindings.values.at("sequence") + "_tensor_map");

  bindings.set("block_q", config.block_q);
  bindings.set("block_kv", config.block_kv);
  bindings.set("consumers", shape.consumers);
  bindings.set("stages", config.stages);
  bindings.set("v_stages", shape.v_stages);
  bindings.set("q_stages", config.q_stages);
  bindings.conditions["ascending_keys"] = config.ascending_keys;
  bindings.set("even_tiles", text_of(config.even_tiles));
  bindings.set("partial_blocks", text_of(!config.even_tiles || hides_pairs(problem.mask) || problem.alibi));
  // Rows of one head share what ALiBi adds, but for a number of each. Where bits must not tell how rows are tiled they
  // do not.
  const bool alibi_shared = problem.alibi && !config.pack_gqa && !problem.invariant;
  bindings.conditions["alibi_shared"] = alibi_shared;
  bindings.set("minus_alibi", alibi_shared ? " - alibi" : "");
  // Where queries see whole blocks beyond their diagonals, and sums stay in the registers meanwhile.
  const bool alibi_beyond = problem.alibi && problem.mask != MaskKind::causal && !adds_sums(problem, config) &&
                            !problem.invariant && !config.ascending_keys && !config.visible_blocks;
  bindings.conditions["alibi_beyond"] = alibi_beyond;
  bindings.conditions["whole_blocks"] = alibi_beyond;
  bind_terms_of_row(problem, config, alibi_shared, alibi_beyond, &bindings);
  bindings.set("ordered_warpgroups", text_of(config.warpgroup_order != WarpgroupOrder::free));
  bindings.set("rescale_threshold", config.rescale_threshold);
  bindings.set("headroom", forward_sm90_headroom(problem, config));
  bindings.set("producer_registers", shape.producer_registers);
  bindings.set("consumer_registers", shape.consumer_registers);
  bindings.set("ctas_per_sm", config.ctas_per_sm);
  bindings.set("cluster", config.cluster);
  bindings.conditions["promoted"] = config.promotion_blocks != 0;
  bindings.conditions["adds_sums"] = adds_sums(problem, config);
  bindings.set("promotion_blocks", config.promotion_blocks);
  bindings.conditions["clustered"] = config.cluster > 1;
  bindings.set("kv_loads", config.cluster > 1 ? "shared" : "alone");
  bindings.set("panel_columns", shape.panel_columns);
  bindings.set("panels", shape.panels);
  bindings.set("swizzle_mode", swizzle_mode(shape.panel_columns));
  shape.shared.bind(&bindings);
  bind_barriers(shape.barriers, config.tile_scheduler == TileScheduler::dynamic_persistent, config.cluster > 1,
                &bindings);
  bind_pair_tiles(problem, shape, config, &bindings);
  bind_visible_blocks(problem, config, BlockWalk::keys, &bindings);
  bindings.conditions["uniform_blocks"] = problem.has_used_lengths() || config.visible_blocks;

  bindings.set("tile_scheduler", partial_name(to_string(config.tile_scheduler)));
  bindings.set("producer_tiles", problem.packed ? "FoundTiles" : "ProducerTiles");
  bindings.set("consumer_tiles", problem.packed ? "RecordedTiles" : "ConsumerTiles");
  const bool may_hide = problem.has_pair_tensors();
  // The faster maximum of blocks in which only single scores are hidden takes registers, which others want more.
  const bool has_registers = !problem.alibi && problem.softcap == 0 && !config.visible_blocks;
  bindings.set("may_hide_and_masked", !may_hide ? "kMasked" : has_registers ? "true, kMasked" : "true, true");
  bindings.set("hides", may_hide ? "kMayHide" : "kMasked");
  const bool drops = problem.dropout != 0;
  bindings.set("kept_keys", drops ? ", args, rows.first_row, block" : "");
  bindings.set("kept_parameters", drops ? ", const Arguments& args, const QueryDropout& dropout, i32 block" : "");
  bindings.conditions["dropout_shared"] = drops;
  bindings.set("exponential", config.emulated_exponentials > 0 ? "polynomial" : "unit");
  if (config.emulated_exponentials > 0) bindings.set("emulated_exponentials", config.emulated_exponentials);
  bindings.set("mainloop", mainloop_partial(config));
  if (mainloop_partial(config) == "overlapped") {
    bindings.set("terms_of_block", shape.pair_tiles.any() ? ", terms" : "");
    bindings.set("parameter_of_terms", shape.pair_tiles.any() ? ", PairTerms& terms" : "");
  }
  const bool across = config.overlap == Overlap::across;
  bindings.set("consume", across ? "consume_across" : "consume");
  const std::string stored = across ? "pending.number" : "opaque_i32(number)";
  bindings.set("stored_tile", problem.packed ? fmt::format("load_stored_tile(static_cast<u32>({}))", stored) : stored);
  if (config.overlap != Overlap::across) {
    bindings.set("key_walk", adds_parts_of_keys(problem, config) ? "down_in_parts"
                             : config.ascending_keys             ? "up"
                             : config.visible_blocks             ? "visible"
                                                                 : "down");
  }
  bindings.set("query_operand", config.q_in_registers ? "query_registers" : "query_shared");
  bindings.set("probability_operand", config.p_in_shared ? "probabilities_shared" : "probabilities_registers");
  bindings.lists["wgmma_shapes"] = wgmma_shapes({config.block_kv, problem.head_dim}, target);
  return bindings;
}

// bf16 has the exponents of fp32, fp16 has none to spare below P.
int forward_sm90_headroom(const AttentionProblem& problem, const KernelConfig& config) {
  return problem.dtype == DataType::bf16 ? config.rescale_threshold : 0;
}

KeySplit forward_sm90_split(const ForwardSm90Shape& shape, const KernelConfig& config, const DeviceSpec& device) {
  return key_split(config, device, device.sm_count * config.ctas_per_sm / config.cluster,
                   config.block_q / shape.group * config.cluster, shape.group);
}

KernelLaunch forward_sm90_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target) {
  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  KernelLaunch launch;
  launch.entry = kEntry;
  launch.threads = shape.threads;
  launch.shared_bytes = shape.shared.bytes();
  launch.rows_per_tile = config.block_q / shape.group * config.cluster;
  launch.heads_per_tile = shape.group;
  launch.section_bytes = section_bytes(config, device);
  launch.cluster = config.cluster;
  launch.split = forward_sm90_split(shape, config, device);
  if (config.tile_scheduler != TileScheduler::single) launch.max_ctas = persistent_ctas(config, device);
  launch.arguments = argument_layout(problem, config);
  const int swizzle_bytes = size_of(problem.dtype) * shape.panel_columns;
  const bool ends_with_rows = problem.has_used_lengths();
  launch.tensor_maps = {
      {Operand::q, shape.panel_columns, config.block_q / shape.group, swizzle_bytes, shape.group, ends_with_rows},
      {Operand::k, shape.panel_columns, shape.kv_box_rows, swizzle_bytes, 1, ends_with_rows},
      {Operand::v, shape.panel_columns, shape.kv_box_rows, swizzle_bytes, 1, ends_with_rows}};
  shape.pair_tiles.add_to(&launch.tensor_maps, config.block_q / shape.group, shape.group);
  render_launch("forward_sm90", kernel_class(problem, config), device, templates, target,
                forward_sm90_bindings(problem, config, device, target), &launch);
  return launch;
}

}  // namespace attune
