#include "generator/families/backward_sm90/plan.h"

#include <utility>

#include "generator/families/backward_common/convert.h"
#include "generator/families/backward_common/delta.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/sinks.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/bias.h"
#include "generator/families/backward_sm90/fused_dbias.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/shared/bindings.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"
#include "generator/families/shared/wgmma_shapes.h"
#include "generator/problem/mask_geometry.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

static_assert(kMostBlockKv <= kMostKeysOfTile);

Arguments key_tile_arguments(const AttentionProblem& problem, const KernelConfig& config) {
  Arguments fields = {TensorMap{Operand::q}, TensorMap{Operand::k}, TensorMap{Operand::v}, TensorMap{Operand::d_o}};
  append(&fields, {Workspace{kStatistics}, Workspace{kDqSums}});
  if (config.dq == DqAccumulation::ordered) fields.push_back(Workspace{kDqTickets});
  if (counts_tiles(config)) fields.push_back(Workspace{kTileCounter});
  if (problem.packed) fields.push_back(Workspace{kKeyTileList});
  if (config.fused_convert) {
    append(&fields, {Workspace{kFinishedTiles}, Pointer{Operand::d_q}});
    append_strides(&fields, {Operand::d_q});
  }
  if (adds_key_sums(config)) {
    append(&fields, {Workspace{kDkSums}, Workspace{kDvSums}});
    if (takes_tickets(config)) fields.push_back(Workspace{kDkdvTickets});
  } else {
    append_pointers(&fields, {Operand::d_k, Operand::d_v});
    append_strides(&fields, {Operand::d_k, Operand::d_v});
  }
  append(&fields, {Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::key_tiles});
  append_lengths(&fields, problem);
  if (problem.packed) fields.push_back(Scalar::batch);
  append_mask(&fields, problem);
  append(&fields, {Scalar::softmax_scale, Scalar::softmax_scale_log2});
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  append_dropout_scale(&fields, problem);
  if (config.tile_scheduler != TileScheduler::single && !problem.packed) fields.push_back(Scalar::tiles);
  if (config.tile_order == TileOrder::l2_sections) {
    if (!problem.packed) fields.push_back(Scalar::batch);
    fields.push_back(Scalar::section_heads);
  }
  if (config.pair_stages > 0) append_pair_maps(&fields, problem);
  append_visible_blocks(&fields, config);
  append_fused_dbias(&fields, config);
  return fields;
}

void bind_barriers(const BackwardBarriers& barriers, TemplateBindings* bindings) {
  auto& rings = bindings->lists["rings"];
  for (const BackwardBarriers::Ring& ring : barriers.rings) {
    if (ring.stages == 0) continue;
    rings.push_back({{"name", ring.name},
                     {"stages", std::to_string(ring.stages)},
                     {"full", std::to_string(ring.full)},
                     {"empty", std::to_string(ring.empty)},
                     {"fillers", std::to_string(ring.fillers)},
                     {"readers", std::to_string(ring.readers)}});
  }
  bindings->set("k_full", barriers.k_full);
  bindings->set("v_full", barriers.v_full);
  bindings->set("k_empty", barriers.k_empty);
  bindings->set("v_empty", barriers.v_empty);
  bindings->set("peer_ds_full", barriers.peer_ds_full);
}

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string query_step(Overlap overlap) {
  switch (overlap) {
    case Overlap::within:
      return "overlapped";
    case Overlap::queued:
      return "queued";
    case Overlap::none:
    case Overlap::across:
      break;
  }
  return "serial";
}

// Where nothing is read early the text has no trace of it: ptxas makes other kernels even of the same loads in a
// struct.
void bind_early_statistics(const KernelConfig& config, TemplateBindings* bindings) {
  const bool early = config.early_statistics > 0, columns = early || config.split_dkdv;
  const int lse = config.split_dkdv ? 0 : config.early_statistics / 2;
  bindings->conditions["block_columns"] = columns;
  bindings->set("early_lse", lse);
  bindings->set("early_delta", config.early_statistics - lse);
  bindings->set("lse_type", columns ? "const LseColumns&" : "u32");
  bindings->set("lse_of_k", columns ? "lse.of(k)" : "load_columns(lse, k)");
  bindings->set("delta_type", columns ? "const DeltaColumns&" : "u32");
  bindings->set("delta_of_k", columns ? "delta.of(k)" : "load_columns(delta, k)");
  if (config.split_dkdv) return;
  bindings->conditions["early"] = early;
  bindings->set("lse_parameter", early ? ", const LseColumns& lse" : "");
  bindings->set("lse_columns", early ? "lse" : "warpgroup.lse()");
  bindings->set("and_lse", early ? ", lse" : "");
  bindings->set("delta_parameter", early ? "const DeltaColumns& delta" : "");
  bindings->set("delta_columns", early ? "delta" : "warpgroup.delta()");
  bindings->set("delta", early ? "delta" : "");
  // Where all of LSE is read early, in no more than 16 registers. With 128 queries this order spills.
  constexpr int kMostQueries = 64;
  bindings->conditions["waits_for_do"] =
      16 * lse == config.block_q && config.block_q <= kMostQueries && config.dq_by == DqWarpgroups::own;
}

// Who computes dQ, and how it is added.
void bind_dq_warpgroups(const KernelConfig& config, TemplateBindings* bindings) {
  const bool softmax = config.dq_by == DqWarpgroups::softmax;
  bindings->conditions["dq_by_softmax"] = softmax;
  bindings->set("dq_formula", softmax ? "dQᵀ = dQᵀ + Kᵀ dSᵀ" : "dQ = dQ + dS K");
  bindings->set("first_warpgroup_work", softmax ? "loads, with two of its warps"
                                                : "computes dQ and adds it to its sums; two of its warps load");
  bindings->set("ds_readers", softmax ? "all softmax warpgroups" : "warpgroup 0");
  bindings->set("first_warpgroup", softmax ? "Producer" : "Dq");
  // Steps of a product whose descriptors the compiler may keep in uniform registers. More products leave fewer of them.
  bindings->set("most_kept_steps", softmax ? 4 : 12);
  bindings->set("query_multiple", softmax ? 16 : kWarpgroupRows);
  // V is read by those that compute dP, K by those that compute S, or dQ.
  const std::string scoring = config.split_dkdv ? "(kSoftmaxWarpgroups / 2)" : "kSoftmaxWarpgroups";
  bindings->set("k_readers", softmax ? scoring : "(" + scoring + " + 1)");
  bindings->set("v_readers", scoring);
  const bool persistent = config.tile_scheduler != TileScheduler::single;
  bindings->conditions["loads_ahead"] = persistent && !softmax;
  bindings->set("and_tiles", persistent ? ", const KeyTilesOfCta& tiles" : "");
  bindings->set("and_tiles_passed", persistent ? ", tiles" : "");
  bindings->set("poll",
                persistent ? "ahead.poll(args, barriers, shared)" : "queries.poll(args, barriers, tile, walk, shared)");
  bindings->conditions["bulk_adds"] = config.dq_adds == DqAdds::bulk;
  bindings->set("dq_adds", std::string(to_string(config.dq_adds)));
  if (config.split_dkdv) return;
  bindings->set("and_dq", softmax ? ", dq(warpgroup)" : "");
  bindings->set("with_dq", softmax ? "_with_dq" : "");
  bindings->set("skipping", softmax ? "keys" : "keys.warpgroup, true");
}

// Tiles of tensors of pairs, which come with Q.
void bind_pair_tiles(const AttentionProblem& problem, const KernelConfig& config, const BackwardSm90Shape& shape,
                     TemplateBindings* bindings) {
  const PairTiles& tiles = shape.pair_tiles;
  tiles.bind(problem, config.pair_stages, bindings);
  bindings->conditions["pair_tiles"] = tiles.any();
  bindings->conditions["packed"] = false;
  bindings->set("pair_words", tiles.any() ? ", with tiles of pairs" : "");
  bindings->set("key_of_pairs", tiles.any() ? ", i32 first_key" : "");
  bindings->set("key_of_tile", tiles.any() ? ", tile.first_key" : "");
  bindings->set("key_of_loads", tiles.any() ? ", first_key" : "");
  const bool biased = problem.bias != PairTensor::none, masked = problem.attention_mask != PairTensor::none;
  bindings->set("from_of_terms", problem.alibi ? "from" : "/*from*/");
  bindings->set("and_attends", masked ? " && pairs.attends(i)" : "");
  const std::string from_lse = problem.alibi ? "alibi.gain(from, i) - lse" : "-lse";
  bindings->conditions["whole_apart"] = shape.whole_apart;
  bindings->set("gain_less_lse", biased ? "fma_rn_f32(kLog2E, pairs.bias(i), " + from_lse + ")" : from_lse);
}

KernelLaunch key_tile_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm90Shape shape = backward_sm90_shape(problem, config, device);
  KernelLaunch launch;
  launch.tile_rows = TileRows::keys;
  launch.threads = shape.threads;
  launch.rows_per_tile = config.block_kv * config.cluster;
  launch.cluster = config.cluster;
  launch.programmatic_launch = true;
  if (config.tile_scheduler != TileScheduler::single)
    launch.max_ctas = device.sm_count * config.ctas_per_sm / config.cluster * config.cluster;
  launch.kv_grad_per_query_head = adds_key_sums(config);
  launch.split.parts = config.query_parts;
  launch.shared_bytes = shape.shared.bytes();
  if (config.tile_order == TileOrder::l2_sections) set_key_tile_sections(config, device, &launch);
  launch.arguments = ArgumentLayout::of(key_tile_arguments(problem, config));
  const int swizzle_bytes = size_of(problem.dtype) * shape.panel_columns;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::d_o}) {
    const bool of_keys = operand == Operand::k || operand == Operand::v;
    launch.tensor_maps.push_back({operand, shape.panel_columns, of_keys ? config.block_kv : config.block_q,
                                  swizzle_bytes, 1, problem.has_used_lengths()});
  }
  shape.pair_tiles.add_to(&launch.tensor_maps, config.block_q, 1);
  if (config.fused_dbias)
    launch.tensor_maps.push_back({Operand::d_bias, shape.panel_columns, config.block_q, swizzle_bytes, 1, false});
  return launch;
}

TemplateBindings key_tile_bindings(const AttentionProblem& problem, const KernelConfig& config,
                                   const DeviceSpec& device, KernelTarget target) {
  const BackwardSm90Shape shape = backward_sm90_shape(problem, config, device);
  TemplateBindings bindings;
  bind_attention(problem, &bindings);
  bind_score_gradient(problem, &bindings);
  bind_dropout(problem, &bindings);
  bindings.conditions["dropout_shared"] = problem.dropout != 0;
  // What dS is made of is not what dV is made of, where scores are capped or dropout keeps some of P.
  const bool drops = problem.dropout != 0, sloped = bindings.conditions["score_slope"] || drops;
  bindings.conditions["score_slope"] = sloped;
  if (config.split_dkdv) bindings.conditions["head_terms"] = bindings.conditions["exponent_terms"] || drops;
  // What leaves as a gradient itself is divided by the share at once.
  const bool divides = drops && !divides_at_store(problem, config);
  bindings.set("dropout_scale_parameter", divides ? ", float dropout_scale" : "");
  bindings.set("and_dropout_scale", divides ? ", args.dropout_scale" : "");
  bindings.set("per_share", divides ? " * dropout_scale" : "");
  const bool slopes_shared = shape.slopes == SlopesPlace::shared;
  bindings.set("dropout_parameters", !drops ? ""
                                            : std::string(slopes_shared ? ", PackedScores& packed" : "") +
                                                  ", const Arguments& args, const KeyDropout& dropout, i32 block");
  const std::string dropped =
      !drops ? "" : (slopes_shared ? ", p, " : ", ") + std::string("args, warpgroup.dropout(tile), block");
  if (config.split_dkdv) {
    bindings.conditions["divides"] = divides;
    bindings.set("args_of_keys", divides ? "args, " : "");
  }
  if (!adds_key_sums(config)) {
    bindings.set("dk_scale", ds_scale(problem, config));
    bindings.set("dv_scale", dv_scale(problem));
  }
  bindings.set("and_score", sloped ? ", score(args)" : "");
  // What is said of rows is cheaper; a derivative wants the score as it was, and bits that tell of no block each pair
  // by itself.
  const bool pairs = problem.has_pair_tensors();
  bindings.set("terms_parameter", bindings.conditions["exponent_terms"]
                                      ? (shape.pair_tiles.any() ? ", Terms terms" : ", const Terms& terms")
                                      : "");
  bindings.conditions["alibi_of_rows"] = problem.alibi && !problem.invariant && !pairs;
  bindings.conditions["alibi_mended"] = problem.alibi && !problem.invariant && !pairs && !sloped;
  bindings.conditions["alibi_of_pairs"] = problem.alibi && (problem.invariant || pairs || sloped);
  bindings.set("and_alibi_words", problem.alibi ? " and by ALiBi" : "");
  bindings.set("and_alibi_of_pairs", problem.alibi ? ", AlibiOfPairs(slope, place)" : "");
  bindings.set("and_alibi_gain", problem.alibi ? " + alibi.gain(from, i)" : "");
  if (config.split_dkdv) bindings.set("live", problem.alibi ? "live" : "/*live*/");
  bindings.conditions["slopes_shared"] = slopes_shared;
  if (!config.split_dkdv) {
    bindings.conditions["keeps_late"] = shape.slopes == SlopesPlace::p;
    bindings.conditions["slopes_apart"] = shape.slopes == SlopesPlace::registers;
  }
  bindings.set("slopes_place", slopes_shared ? "in the buffer of dS" : "in registers");
  bindings.set("slopes_type", slopes_shared ? "u32" : "PackedScores&");
  bindings.set("pair_of_p", slopes_shared ? "i" : "4 * k + i");
  if (config.split_dkdv) {
    bindings.set("and_slopes", sloped ? ", sloped, score" + dropped : "");
    bindings.set("sloped", sloped ? "sloped" : "p");
  } else {
    const std::string slopes = slopes_shared                            ? "warpgroup.slopes()"
                               : shape.slopes == SlopesPlace::registers ? "sloped"
                                                                        : "p";
    bindings.set("p_of_ds", slopes);
    bindings.set("slopes_of_block", sloped ? ", " + slopes + ", score" + dropped : "");
  }
  bind_head_dims(problem, &bindings);
  bindings.set("kv_source", bindings.values.at("sequence") + "_tensor_map");
  bindings.set("block_q", config.block_q);
  bindings.set("block_kv", config.block_kv);
  bindings.set("tile_numbers", kTileNumbers);
  bindings.set("stages", config.stages);
  bindings.set("do_stages", shape.do_stages);
  bindings.set("ds_stages", config.ds_stages);
  bindings.set("softmax_count", shape.softmax_warpgroups);
  bindings.set("ordered_warpgroups", text_of(config.warpgroup_order != WarpgroupOrder::free));
  bindings.set("dq_registers", shape.dq_registers);
  bindings.set("softmax_registers", shape.softmax_registers);
  bindings.set("ctas_per_sm", config.ctas_per_sm);
  bindings.set("panel_columns", shape.panel_columns);
  bindings.set("panels", shape.panels);
  bindings.set("swizzle_mode", swizzle_mode(shape.panel_columns));
  bindings.set("tile_keys", "kWarpgroupKeys");
  bindings.set("warpgroups_of_keys", config.split_dkdv ? 2 : 1);
  bindings.conditions["split"] = config.split_dkdv;
  bindings.conditions["persistent"] = config.tile_scheduler != TileScheduler::single;
  bindings.set("tile_scheduler", partial_name(to_string(config.tile_scheduler)));
  const bool pair = config.cluster > 1;
  bindings.conditions["clustered"] = pair;
  bindings.conditions["packed_sequences"] = problem.packed;
  if (config.tile_scheduler != TileScheduler::single)
    bindings.set("tile_of_number", problem.packed ? "tile_in_order(args, number)"
                                                  : "number < args.tiles ? tile_in_order(args, number) : -1");
  bind_sequence_words(problem, &bindings);
  bindings.set("cluster", config.cluster);
  bindings.set("key_tile", pair ? "key_tile_of_cluster" : "key_tile");
  bindings.set("walked_keys", pair ? "tile.first_of_cluster, tile.keys_of_cluster" : "tile.first_key, tile.keys");
  bindings.set("walked_by", pair ? " or of the other CTA's" : "");
  bindings.set("to_peer", pair ? ", and to that of the other CTA" : "");
  bindings.set("and_panels", pair ? ", and another one, from kScorePanel on" : "");
  bindings.set("dq_scores", pair ? "pair" : "own");
  bind_dq_warpgroups(config, &bindings);
  bind_early_statistics(config, &bindings);
  bind_pair_tiles(problem, config, shape, &bindings);
  bind_visible_blocks(problem, config, BlockWalk::queries, &bindings);
  bindings.conditions["uniform_blocks"] = problem.has_used_lengths() || config.visible_blocks;
  shape.shared.bind(&bindings);
  bind_barriers(shape.barriers, &bindings);

  const DqProducts dq = dq_products(problem, config);
  bindings.set("dq_columns", dq.columns);
  bindings.set("dq_products", dq.count);
  bindings.set("dq_last_columns", dq.last_columns);
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax;
  const int dq_width = dq_by_softmax ? dq_shares(problem, config).queries : dq.columns;
  bindings.lists["wgmma_shapes"] = wgmma_shapes({problem.head_dim, config.block_q, dq_width}, target);
  bindings.set("query_step", query_step(config.overlap));
  bindings.set("gradients", config.split_dkdv ? "split" : "together");
  bindings.conditions["ends_early"] =
      hides_first_keys(problem.mask) || config.query_parts > 1 || problem.has_used_lengths();
  bindings.conditions["polled_loads"] = config.polled_loads;
  bindings.conditions["p_in_ds"] = config.p_in_ds;
  if (config.split_dkdv) bindings.conditions["dk_first"] = config.dk_first;
  bindings.conditions["fused_convert"] = config.fused_convert;
  bindings.conditions["fused_dbias"] = config.fused_dbias;
  bindings.set("dq_scale", ds_scale(problem, config));
  bindings.set("dq_converter", config.fused_convert ? "the tile that adds last" : "another kernel");
  bindings.set("convert_units", "(rows + 15) / 16 * kParts");
  bindings.set("convert_warps", "kWarpgroupWarps");
  bindings.set("load_sums", "load_added_sums");
  bindings.set("finishing_tiles", config.query_parts > 1 ? "kQueryParts" : "kCluster");
  bindings.set("dq_tickets", config.dq == DqAccumulation::ordered ? "ordered" : "none");
  bindings.conditions["shared_tickets"] = config.ticket_blocks > 1;
  bindings.set("ticket_blocks", config.ticket_blocks);
  if (config.dq == DqAccumulation::ordered) {
    const bool shared = config.ticket_blocks > 1;
    const std::string rows = shared ? "kTicketBlocks * kBlockQ" : "kBlockQ";
    bindings.set("ticket_place",
                 problem.packed ? "first_block_of_queries<" + rows + ">(tile.sequence) + ticket" : "ticket");
    bindings.set("tickets_of_head", problem.packed ? "blocks_of_queries<" + rows + ">(args)"
                                                   : "(walk.blocks.all + kTicketBlocks - 1) / kTicketBlocks");
  }
  bind_key_tiles(problem, config, &bindings);
  bindings.set("softmax_warpgroups",
               config.split_dkdv ? "Two of the others share 64 keys: one computes S, P and dV, one dP, dS and dK."
                                 : "Each of the others owns 64 keys: their S, P, dP, dS, dK and dV.");
  return bindings;
}

}  // namespace

void describe_backward_sm90(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan) {
  constexpr StatisticsOrder kOrder = StatisticsOrder::columns;
  add_visible_blocks(device, templates, target, BlockWalk::queries, plan);
  const auto render = [&](const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    render_launch(name, plan->kernel_class, device, templates, target, std::move(bindings), &launch);
    plan->launches.push_back(std::move(launch));
  };
  const auto add = [&](const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    bind_elements(problem, &bindings);
    render(name, std::move(launch), std::move(bindings));
  };
  {
    TemplateBindings bindings;
    KernelLaunch launch = delta_launch(problem, config, device, kOrder, true, &bindings);
    add("backward_delta", std::move(launch), std::move(bindings));
  }
  add("backward_sm90", key_tile_launch(problem, config, device), key_tile_bindings(problem, config, device, target));
  const bool converts_keys = adds_key_sums(config), converts_queries = !config.fused_convert;
  for (const bool of_keys : {false, true}) {
    if (of_keys ? !converts_keys : !converts_queries) continue;
    const bool followed = problem.sink && (of_keys || !converts_keys);
    TemplateBindings bindings;
    KernelLaunch launch = convert_launch(problem, config, device, of_keys,
                                         !of_keys && config.dq_by == DqWarpgroups::softmax, true, followed, &bindings);
    add("backward_convert", std::move(launch), std::move(bindings));
  }
  if (problem.sink) {
    TemplateBindings bindings;
    const SinksStart start = converts_keys || converts_queries ? SinksStart::beside : SinksStart::programmatic;
    KernelLaunch launch = sinks_launch(problem, config.block_q, kOrder, start, &bindings);
    render("backward_sinks", std::move(launch), std::move(bindings));
  }
  if (problem.bias_gradient && !config.fused_dbias) {
    TemplateBindings bindings;
    KernelLaunch launch = bias_sm90_launch(problem, device, config.block_q, kOrder, target, &bindings);
    render("backward_bias_sm90", std::move(launch), std::move(bindings));
  }
  describe_backward_workspace(problem, config, plan);
  add_copied_pairs(device, templates, target, plan);
}

std::size_t backward_sm90_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device) {
  return most_backward_workspace_bytes(problem, device, kMostBlockQ, kMostBlockKv);
}

}  // namespace attune
