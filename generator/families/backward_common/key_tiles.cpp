#include "generator/families/backward_common/key_tiles.h"

#include "generator/families/backward_common/workspace.h"
#include "generator/families/shared/bindings.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/mask_geometry.h"

namespace attune {

std::vector<TileOrder> key_tile_orders(const AttentionProblem& problem, DqAccumulation dq) {
  if (!lengthens_tiles(problem.mask) || dq == DqAccumulation::ordered) return {TileOrder::head_major};
  return {TileOrder::head_major, TileOrder::l2_sections};
}

std::vector<bool> kv_grad_choices(const AttentionProblem& problem) {
  if (problem.heads_q == problem.heads_kv) return {false};
  return {false, true};
}

std::int32_t key_tile_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  KernelLaunch launch;
  launch.tile_rows = TileRows::keys;
  launch.kv_grad_per_query_head = adds_key_sums(config);
  launch.split.parts = config.query_parts;
  launch.section_bytes = section_bytes(config, device);
  return launch.section_heads(problem);
}

void bind_key_tiles(const KernelConfig& config, TemplateBindings* bindings) {
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
  bindings->set("key_tile_order", config.dq == DqAccumulation::ordered          ? "head_major_reversed"
                                  : config.tile_order == TileOrder::l2_sections ? "l2_sections"
                                                                                : "head_major");
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
