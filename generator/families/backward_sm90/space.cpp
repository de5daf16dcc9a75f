#include <algorithm>
#include <set>
#include <vector>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/cost.h"
#include "generator/families/backward_sm90/family.h"
#include "generator/families/backward_sm90/fused_dbias.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/backward_sm90/tickets.h"
#include "generator/families/family_word.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/visible_blocks.h"

namespace attune {
namespace {

constexpr int kBlockQ[] = {64, 128};
// More keys of a CTA add to dQ less often, whose sums in memory every block of queries meets.
constexpr int kBlockKv[] = {64, 128, 192};
constexpr int kMostStages = 4;
constexpr int kDsStages[] = {1, 2};  // more changed nothing in a prototype
constexpr int kDqColumns[] = {64, 128};
// Where the softmax warpgroups compute dQ: blocks of other sizes too, of which registers hold those that fit.
constexpr int kBlockQOfDqBySoftmax[] = {64, 80, 96, 112, 128};
constexpr int kMostStagesOfDqBySoftmax = 3;  // a warpgroup that only loads fills a buffer at once
// Below, a warpgroup has registers for dK and dV of 64 keys.
constexpr int kMinHeadDimOfSplit = 112;

bool fits(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  return backward_sm90_shape(problem, config, device).shared.bytes() <=
         static_cast<std::size_t>(device.shared_bytes_per_block);
}

// As many stages of dO as of Q; one fewer where shared memory does not hold so many.
void fit_stages(const AttentionProblem& problem, const DeviceSpec& device, KernelConfig* config) {
  config->do_stages = 0;
  if (config->stages > 1 && !fits(problem, *config, device)) config->do_stages = config->stages - 1;
}

// Two CTAs that add to dQ together: where tiles of few keys add to it often, and all columns are two products or four.
bool pair_may_win(const AttentionProblem& problem, const KernelConfig& config) {
  return config.dq == DqAccumulation::atomic && !adds_key_sums(config) && dq_products(problem, config).count % 2 == 0 &&
         problem.seq_kv > config.block_kv;
}

void add_loads_and_conversions(KernelConfig config, std::vector<KernelConfig>* configs) {
  const int buffers = std::min(config.stages, do_stages_of(config));
  for (const bool polled : {false, true}) {
    // With more buffers loads come early enough; where tiles wait for tickets they have the time.
    if (polled && (buffers > 2 || takes_tickets(config))) continue;
    config.polled_loads = polled;
    for (const bool fused : {false, true}) configs->emplace_back(config).fused_convert = fused;
  }
}

// CTAs that take several tiles: where none waits for tickets of another.
void add_persistent(KernelConfig config, std::vector<KernelConfig>* configs) {
  if (takes_tickets(config)) return;
  for (const TileScheduler scheduler : {TileScheduler::static_persistent, TileScheduler::dynamic_persistent})
    configs->emplace_back(config).tile_scheduler = scheduler;
}

// Adds that run on by themselves, where the warpgroup that computes dQ has no other work than that and loads.
void add_bulk_adds(KernelConfig config, std::vector<KernelConfig>* configs) {
  if (config.dq == DqAccumulation::ordered) return;
  config.dq_adds = DqAdds::bulk;
  configs->push_back(config);
  if (!takes_tickets(config)) configs->emplace_back(config).tile_scheduler = TileScheduler::dynamic_persistent;
}

// Variants of the warpgroups' products: what runs beside them, their order, their operands. Some choices need more
// stages, or other warpgroups.
void add_products(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
                  std::vector<KernelConfig>* configs) {
  for (const Overlap overlap : {Overlap::none, Overlap::within, Overlap::queued}) {
    if (overlap != Overlap::none && config.stages == 1) continue;
    if (overlap == Overlap::queued && config.split_dkdv) continue;
    config.overlap = overlap;
    for (const WarpgroupOrder warpgroups : {WarpgroupOrder::free, WarpgroupOrder::ordered}) {
      if (warpgroups != WarpgroupOrder::free && (config.block_kv == 64 || config.split_dkdv)) continue;
      config.warpgroup_order = warpgroups;
      for (const int columns : kDqColumns) {
        if (columns > 64 && problem.head_dim <= 64) continue;
        config.dq_columns = columns;
        for (const int ctas : {1, 2}) {
          if (ctas > 1 && problem.head_dim > kMostHeadDimOfTwoCtas) continue;
          config.ctas_per_sm = ctas;
          if (ctas > 1 || columns > 64) {
            configs->push_back(config);
            continue;
          }
          add_loads_and_conversions(config, configs);
          add_bulk_adds(config, configs);
          add_persistent(config, configs);
          if (!pair_may_win(problem, config)) continue;
          KernelConfig pair = config;
          pair.cluster = 2;
          fit_stages(problem, device, &pair);
          add_loads_and_conversions(pair, configs);
          if (!pair.split_dkdv) continue;
          // Where it leaves memory for another stage of dO, or for the config at all.
          KernelConfig shared_buffer = pair;
          shared_buffer.p_in_ds = true;
          fit_stages(problem, device, &shared_buffer);
          if (do_stages_of(shared_buffer) > do_stages_of(pair) || !fits(problem, pair, device))
            add_loads_and_conversions(shared_buffer, configs);
        }
      }
    }
  }
}

void add_rings(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
               std::vector<KernelConfig>* configs) {
  for (config.stages = 1; config.stages <= kMostStages; ++config.stages) {
    for (const int ds_stages : kDsStages) {
      config.ds_stages = ds_stages;
      fit_stages(problem, device, &config);
      add_products(problem, config, device, configs);
    }
  }
}

// dQ by the softmax warpgroups: how it is added, and what runs beside its product.
void add_dq_by_softmax(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
                       std::vector<KernelConfig>* configs) {
  if (config.dq == DqAccumulation::ordered) return;
  config.dq_by = DqWarpgroups::softmax;
  for (const int block_q : kBlockQOfDqBySoftmax) {
    config.block_q = block_q;
    for (const DqAdds adds : {DqAdds::red, DqAdds::bulk}) {
      config.dq_adds = adds;
      for (config.stages = 2; config.stages <= kMostStagesOfDqBySoftmax; ++config.stages) {
        fit_stages(problem, device, &config);
        for (const Overlap overlap : {Overlap::within, Overlap::queued}) {
          config.overlap = overlap;
          for (const WarpgroupOrder warpgroups : {WarpgroupOrder::free, WarpgroupOrder::ordered}) {
            if (warpgroups != WarpgroupOrder::free && config.block_kv == 64) continue;
            config.warpgroup_order = warpgroups;
            configs->push_back(config);
          }
        }
      }
    }
  }
}

// Smaller sections: of half the size for wide heads (head dim 256 causal: 2 % faster at S = 1024, 3 % slower at 4096),
// and of whole groups that L2 holds together, where tiles walk through a group's heads and a section counts one of
// each.
void add_sections(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
                  std::vector<KernelConfig>* configs) {
  configs->push_back(config);
  if (config.tile_order != TileOrder::l2_sections || takes_tickets(config)) return;
  constexpr int kLeastHeadDim = 136;
  const int usual = KernelConfig().l2_parts;
  const auto group = static_cast<int>(problem.heads_q / problem.heads_kv);
  std::set<int> parts;
  if (problem.head_dim >= kLeastHeadDim) parts.insert(2 * usual);
  if (!adds_key_sums(config) && group > usual) parts.insert(std::min(group, kMostL2Parts));
  std::int32_t heads = key_tile_section_heads(problem, config, device);
  for (const int more : parts) {
    config.l2_parts = more;
    const std::int32_t fewer = key_tile_section_heads(problem, config, device);
    if (fewer < heads) configs->push_back(config);
    heads = fewer;
  }
}

// Both orders of dK's product and of handing dS over, where two warpgroups share keys.
void add_orders_of_dk(const KernelConfig& config, std::vector<KernelConfig>* configs) {
  configs->push_back(config);
  if (config.split_dkdv && config.overlap == Overlap::none) configs->emplace_back(config).dk_first = true;
}

// How much of LSE and delta may be read early beside what is usual, where nothing else is out of the ordinary: what
// ptxas makes of each cannot be foreseen.
std::vector<int> unusual_early_statistics(const AttentionProblem& problem, const KernelConfig& config) {
  if (config.cluster > 1 || config.fused_convert) return {};
  if (config.split_dkdv) return config.overlap == Overlap::none ? std::vector{2} : std::vector<int>{};
  constexpr int kLeastStages = 3;        // with fewer, loads come late
  constexpr int kMostHeadDimOfOne = 40;  // registers do not bind, and little is to be won
  if (problem.head_dim <= kMostHeadDimOfOne || config.block_kv == 64 || config.stages < kLeastStages ||
      (takes_tickets(config) && config.ticket_blocks == 1) || config.overlap == Overlap::none || config.polled_loads ||
      config.dq_adds == DqAdds::bulk || config.dq_columns > 64 ||
      config.tile_scheduler == TileScheduler::static_persistent)
    return {};
  return {most_early_statistics(config), 4, 0};
}

void add_early_statistics(const AttentionProblem& problem, KernelConfig config, std::vector<KernelConfig>* configs) {
  const int usual = usual_early_statistics(problem, config);
  configs->emplace_back(config).early_statistics = usual;
  for (const int early : unusual_early_statistics(problem, config)) {
    if (early != usual) configs->emplace_back(config).early_statistics = early;
  }
}

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config = default_fields(FamilyWord::sm90);
  for (const DqAccumulation dq : {DqAccumulation::atomic, DqAccumulation::ordered}) {
    config.dq = dq;
    for (const TileOrder order : key_tile_orders(problem, dq)) {
      config.tile_order = order;
      for (const bool apart : kv_grad_choices(problem)) {
        config.kv_grad_per_query_head = apart;
        for (const int block_q : kBlockQ) {
          config.block_q = block_q;
          for (const int block_kv : kBlockKv) {
            config.block_kv = block_kv;
            for (const bool split : {false, true}) {
              if (split && (problem.head_dim < kMinHeadDimOfSplit || block_kv > 64)) continue;
              config.split_dkdv = split;
              for (const int parts : query_part_choices(problem, config, device)) {
                config.query_parts = parts;
                add_rings(problem, config, device, &configs);
              }
            }
          }
        }
        for (const int block_kv : kBlockKv) {
          KernelConfig by_softmax = config;
          by_softmax.block_kv = block_kv;
          by_softmax.split_dkdv = false;
          by_softmax.query_parts = 1;
          add_dq_by_softmax(problem, by_softmax, device, &configs);
        }
      }
    }
  }
  std::vector<KernelConfig> sections, tickets, orders, all;
  for (const KernelConfig& each : configs) add_sections(problem, each, device, &sections);
  for (const KernelConfig& each : sections) {
    for (const KernelConfig& choice : with_ticket_choices(problem, each, device)) tickets.push_back(choice);
  }
  for (const KernelConfig& each : tickets) add_orders_of_dk(each, &orders);
  for (const KernelConfig& each : orders) add_early_statistics(problem, each, &all);
  return all;
}

bool is_of_reduced_space(const AttentionProblem& problem, const KernelConfig& config) {
  const bool overlap = config.overlap == Overlap::within || (config.overlap == Overlap::none && problem.head_dim > 32);
  const bool rings = config.stages == 2 && config.do_stages == 0 && config.ds_stages == 2;
  // Only wide heads leave no registers for both.
  const bool split = config.split_dkdv == (problem.head_dim > 128);
  const bool dq_by_own = config.dq_by == DqWarpgroups::own;
  return overlap && rings && split && dq_by_own && config.dq_columns == 64 && config.ctas_per_sm == 1 &&
         config.cluster == 1 && !config.fused_convert && !config.polled_loads && !config.dk_first &&
         config.early_statistics == usual_early_statistics(problem, config) &&
         config.tile_scheduler == TileScheduler::single && config.warpgroup_order == WarpgroupOrder::free &&
         (config.dq != DqAccumulation::ordered || config.ticket_blocks > 1 || config.query_parts > 1) &&
         config.l2_parts == KernelConfig().l2_parts && config.tile_order == key_tile_orders(problem, config.dq).back();
}

}  // namespace

void enumerate_backward_sm90(const Question& question, SpaceExtent extent, std::vector<KernelConfig>* configs) {
  const std::vector<bool> visible_blocks = visible_block_choices(question.problem);
  for (const KernelConfig& config : all_configs(question.problem, question.device)) {
    if (extent != SpaceExtent::whole && !is_of_reduced_space(question.problem, config)) continue;
    for (const bool visible : visible_blocks) {
      KernelConfig tiles = config;
      tiles.visible_blocks = visible;
      // Always where it fits: 0.53 to 0.58 of the time with a kernel of its own, which computes S and dP again.
      tiles = with_fused_dbias(question.problem, tiles);
      configs->push_back(tiles);
      if (!question.problem.has_pair_tensors()) continue;
      tiles.pair_stages = tiles.stages;
      if (!fits(question.problem, tiles, question.device)) fit_stages(question.problem, question.device, &tiles);
      for (const bool copied : copied_pairs_choices(question.problem, tiles.pair_stages)) {
        tiles.copied_pairs = copied;
        configs->push_back(tiles);
      }
    }
  }
}

}  // namespace attune
