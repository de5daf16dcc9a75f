#include "generator/families/backward_common/key_tiles.h"

#include <fmt/format.h>

#include "generator/families/backward_common/workspace.h"
#include "generator/families/family_word.h"
#include "generator/families/shared/bindings.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/mask_geometry.h"

namespace attune {

void check_key_tile_order(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.tile_order != TileOrder::head_major && config.tile_order != TileOrder::l2_sections) {
    reasons->push_back(
        fmt::format("order={}: of tiles of keys the first are the longest; take order=head-major or l2-sections",
                    to_string(config.tile_order)));
  } else if (config.l2_parts != KernelConfig().l2_parts && config.tile_order != TileOrder::l2_sections) {
    reasons->push_back(
        fmt::format("l2parts{}: only order=l2-sections has sections; leave the word out", config.l2_parts));
  }
}

std::vector<TileOrder> key_tile_orders(const AttentionProblem& problem, DqAccumulation dq) {
  const bool sections = dq == DqAccumulation::ordered ? problem.has_fixed_order() : lengthens_tiles(problem.mask);
  if (!sections) return {TileOrder::head_major};
  return {TileOrder::head_major, TileOrder::l2_sections};
}

std::vector<bool> kv_grad_choices(const AttentionProblem& problem) {
  if (problem.heads_q == problem.heads_kv || problem.invariant) return {false};
  return {false, true};
}

void set_key_tile_sections(const KernelConfig& config, const DeviceSpec& device, KernelLaunch* launch) {
  constexpr int kFewKeys = 64;
  launch->section_bytes = section_bytes(config, device);
  if (config.dq == DqAccumulation::ordered && config.block_kv <= kFewKeys)
    launch->section_bytes = launch->section_bytes * 5 / 8;
  if (config.family == FamilyWord::sm90 && !takes_tickets(config))
    launch->section_tiles = device.sm_count * config.ctas_per_sm / config.cluster;
}

std::int32_t key_tile_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  KernelLaunch launch;
  launch.tile_rows = TileRows::keys;
  launch.kv_grad_per_query_head = adds_key_sums(config);
  launch.split.parts = config.query_parts;
  launch.rows_per_tile = config.block_kv * config.cluster;
  set_key_tile_sections(config, device, &launch);
  return launch.section_heads(problem);
}

void bind_list_of_key_tiles(const KernelConfig& config, TemplateBindings* bindings) {
  // Orders with the last tile first walk through the list backwards.
  const bool last_first = config.dq == DqAccumulation::ordered;
  bindings->set("block_kv", config.block_kv);
  bindings->set("listed_words", kListedWords);
  bindings->set("listed_before", last_first ? "fewer" : "more");
  bindings->set("listed_before_operator", last_first ? "<" : ">");
  bindings->set("listed_as", last_first ? "less time and are taken later" : "longer and are taken first");
}

void bind_key_tiles(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings) {
  const bool sums = adds_key_sums(config), tickets = takes_tickets(config), parts = config.query_parts > 1;
  bindings->conditions["query_parts"] = parts;
  bindings->set("query_part_count", config.query_parts);
  bindings->set("key_tile_head", sums ? "query_head" : "kv_head");
  bindings->set("dkdv_epilogue", !sums ? "store" : tickets ? "ordered" : "atomic");
  if (sums)
    bindings->set("key_sum_adders", parts ? "The parts of the queries of a group's heads" : "The heads of a group");
  if (sums && tickets) {
    bindings->set("key_sum_adder", parts ? "part" : "head");
    bindings->set("key_sums_before",
                  parts ? "tile.head % args.group_size * kQueryParts + tile.part" : "tile.head % args.group_size");
  }
  bindings->set("tile_id", tickets ? "ticket" : "block");
  // In a fixed order of adds to dQ a tile waits for those behind it, which must have begun.
  const bool last_first = config.dq == DqAccumulation::ordered;
  if (config.tile_order == TileOrder::l2_sections) {
    bindings->set("key_tile_order", "l2_sections");
    bindings->conditions["last_tile_first"] = last_first;
    bindings->set("listed_tiles", problem.packed ? "listed" : "args.key_tiles");
  } else {
    bindings->set("key_tile_order", last_first ? "head_major_reversed" : "head_major");
  }
  bindings->set("tile_heads", problem.packed ? "TileHeads::count(args)" : "args.batch * TileHeads::count(args)");
  bindings->set("tile_parts", parts ? " * kQueryParts" : "");
  bindings->set("listed_words", kListedWords);
  bindings->set("tile_head", parts ? "query head and one part of its queries" : sums ? "query head" : "key/value head");
  bindings->set("loops", parts  ? "for each block of queries of the part"
                         : sums ? "for each block of queries"
                                : "for each query head of the group, for each block of queries");
  bindings->set(
      "key_gradient_formula",
      parts  ? "dK and dV are added to sums over the parts and the group, in fp32, to be scaled by another kernel"
      : sums ? "dK and dV are added to sums over the group, in fp32, to be scaled by another kernel"
             : "dK = scale·dK");
}

}  // namespace attune
