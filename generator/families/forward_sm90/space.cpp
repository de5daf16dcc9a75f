#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "generator/families/family_word.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/family.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/families/forward_sm90/tile_source.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {

constexpr int kConsumers[] = {1, 2, 3};
constexpr int kMinBlockKv = 32, kMaxBlockKv = 256;
constexpr int kStages[] = {1, 2, 3, 4};
constexpr int kMaxHeadDimWithQ = 128;  // beyond, fragments of Q leave no registers for anything else

// Only those that were seen to win: all tiles take equally long without a mask; with one the longest come first.
std::vector<TileOrder> tile_orders(const AttentionProblem& problem) {
  if (!lengthens_tiles(problem.mask)) return {TileOrder::head_major, TileOrder::tile_major};
  return {TileOrder::l2_sections_reversed, TileOrder::head_major_reversed};
}

bool has_rare_choice(const KernelConfig& config) {
  return config.v_stages != 0 || config.cluster != 1 || config.p_in_shared || config.emulated_exponentials != 0 ||
         config.pack_gqa || config.warpgroup_order == WarpgroupOrder::ping_pong ||
         config.l2_parts != KernelConfig().l2_parts || config.ascending_keys;
}

bool is_of_reduced_space(const KernelConfig& config, const AttentionProblem& problem) {
  const auto in = [](int value, std::initializer_list<int> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  const bool tiles = in(config.block_kv, {48, 64, 80, 96, 112, 128, 176}) && in(config.stages, {2, 3});
  const bool persistent = config.tile_scheduler == TileScheduler::dynamic_persistent && config.q_stages == 2;
  return tiles && (config.rescale_threshold > 0 || problem.invariant) && config.overlap == Overlap::within &&
         !config.even_tiles && config.ctas_per_sm == 1 && !has_rare_choice(config) &&
         (persistent || config.tile_scheduler == TileScheduler::single);
}

// Choices that win rarely, if ever, each alone: together, and with every value of the commoner ones, they would make
// the space several times as large.
constexpr int kMinHeadDimOfCluster = 64;
constexpr int kMaxHeadDimOfEmulation = 64;  // beyond, the special function unit has time to spare
constexpr int kEmulatedExponentials[] = {2, 4};
constexpr int kMinHeadDimOfSharedP = 40, kMaxHeadDimOfSharedP = 128, kMinBlockKvOfSharedP = 112;

// Stages of V: another number than of K only where shared memory does not hold the larger one of both, for then the
// ring that waits more may have what is left. Without overlap both wait alike.
void add_stages_of_v(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<KernelConfig>* configs) {
  if (config.overlap == Overlap::none) return;
  const auto fits = [&](const KernelConfig& other) {
    return forward_sm90_shape(problem, other, device).shared.bytes() <=
           static_cast<std::size_t>(device.shared_bytes_per_block);
  };
  for (const int v_stages : {config.stages - 1, config.stages + 1}) {
    KernelConfig uneven = config, even = config;
    uneven.v_stages = v_stages;
    even.stages = std::max(config.stages, v_stages);
    if (v_stages >= 1 && even.stages <= kStages[std::size(kStages) - 1] && fits(uneven) && !fits(even))
      configs->push_back(uneven);
  }
}

// CTAs that share tiles of K and V take less of them from L2.
void add_cluster(const AttentionProblem& problem, const KernelConfig& config, std::vector<KernelConfig>* configs) {
  if (config.block_q < 128 || problem.head_dim < kMinHeadDimOfCluster || problem.seq_q <= config.block_q ||
      config.overlap == Overlap::across)
    return;
  configs->emplace_back(config).cluster = 2;
}

// Smaller sections: at D = 256, S = 4096 those of a quarter of L2 were 7 % faster, elsewhere up to 3 % slower.
void add_sections(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                  std::vector<KernelConfig>* configs) {
  constexpr int kSmallerParts = 4;
  const std::int64_t kv_bytes = problem.batch * problem.heads_kv * problem.seq_kv *
                                (problem.head_dim_qk() + problem.head_dim_v()) * size_of(problem.dtype);
  if (config.tile_order == TileOrder::l2_sections_reversed && kv_bytes > device.l2_bytes / kSmallerParts)
    configs->emplace_back(config).l2_parts = kSmallerParts;
}

// CTAs that begin with the first keys walk through a head together where a mask lets their tiles end at different keys:
// up to 2 % from D = 128 up.
bool ascending_keys_may_win(const AttentionProblem& problem, const KernelConfig& config) {
  return lengthens_tiles(problem.mask) && config.overlap == Overlap::within && config.rescale_threshold > 0 &&
         config.ctas_per_sm == 1;
}

// Parts of the keys where tiles leave SMs idle: alone, and with the heads of a group in a tile, as decoding wants both.
void add_parts(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
               std::vector<KernelConfig>* configs) {
  config.key_parts = problem.invariant ? kFixedParts : kFillParts;
  if (key_parts_may_win(problem, device, query_tile_count(problem, config.block_q, 1), config.block_kv))
    configs->push_back(config);
  if (!pack_gqa_may_win(problem, config.block_q)) return;
  config.pack_gqa = true;
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  if (key_parts_may_win(problem, device, query_tile_count(problem, config.block_q, group), config.block_kv))
    configs->push_back(config);
}

void add_rarer_configs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       std::vector<KernelConfig>* configs) {
  if (config.rescale_threshold == 0 && !problem.invariant) return;
  add_parts(problem, config, device, configs);
  if (config.ctas_per_sm > 1) return;
  if (problem.head_dim <= kMaxHeadDimOfEmulation && config.overlap == Overlap::within) {
    for (const int emulated : kEmulatedExponentials) configs->emplace_back(config).emulated_exponentials = emulated;
  }
  add_sections(problem, config, device, configs);
  if (config.q_in_registers) return;
  add_stages_of_v(problem, config, device, configs);
  add_cluster(problem, config, configs);
  if (pack_gqa_may_win(problem, config.block_q)) configs->emplace_back(config).pack_gqa = true;
  if (config.block_q > 64 && config.overlap == Overlap::none && config.warpgroup_order == WarpgroupOrder::free)
    configs->emplace_back(config).warpgroup_order = WarpgroupOrder::ping_pong;
  // It frees registers: for wide steps of three consumers.
  if (config.block_q == 192 && config.block_kv >= kMinBlockKvOfSharedP && problem.head_dim >= kMinHeadDimOfSharedP &&
      problem.head_dim <= kMaxHeadDimOfSharedP && config.overlap != Overlap::none)
    configs->emplace_back(config).p_in_shared = true;
}

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config = default_fields(FamilyWord::sm90);
  for (const int consumers : kConsumers) {
    config.block_q = 64 * consumers;
    for (config.block_kv = kMinBlockKv; config.block_kv <= kMaxBlockKv; config.block_kv += 16) {
      for (const int stages : kStages) {
        config.stages = stages;
        for (const bool q_in_registers : {false, true}) {
          if (q_in_registers && problem.head_dim > kMaxHeadDimWithQ) continue;
          config.q_in_registers = q_in_registers;
          for (const TileOrder order : tile_orders(problem)) {
            config.tile_order = order;
            for (const int threshold : {0, rescale_threshold_for(problem.dtype)}) {
              config.rescale_threshold = threshold;
              for (const bool whole : whole_tile_choices(problem, config.block_q, config.block_kv)) {
                config.even_tiles = whole;
                for (const TileSource& source : kTileSources) {
                  config.tile_scheduler = source.tile_scheduler;
                  config.q_stages = source.q_stages;
                  for (const Overlap overlap : {Overlap::none, Overlap::within, Overlap::across}) {
                    if (overlap == Overlap::across && source.tile_scheduler == TileScheduler::single) continue;
                    config.overlap = overlap;
                    for (const WarpgroupOrder warpgroups : {WarpgroupOrder::free, WarpgroupOrder::ordered}) {
                      if (warpgroups != WarpgroupOrder::free && consumers == 1) continue;
                      config.warpgroup_order = warpgroups;
                      for (const int ctas : {1, 2}) {
                        if (ctas > 1 && consumers > 1) continue;
                        config.ctas_per_sm = ctas;
                        configs.push_back(config);
                        add_rarer_configs(problem, config, device, &configs);
                        if (ascending_keys_may_win(problem, config)) configs.emplace_back(config).ascending_keys = true;
                      }
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace

void enumerate_forward_sm90(const Question& question, SpaceExtent extent, std::vector<KernelConfig>* configs) {
  const std::vector<int> pair_stages = pair_stage_choices(question.problem, {1, 2});
  const std::vector<bool> visible_blocks = visible_block_choices(question.problem);
  for (const KernelConfig& config : all_configs(question.problem, question.device)) {
    if (extent != SpaceExtent::whole && !is_of_reduced_space(config, question.problem)) continue;
    for (const int stages : pair_stages) {
      for (const bool visible : visible_blocks) {
        KernelConfig choice = promoted_for(question.problem, config);
        choice.pair_stages = stages;
        choice.visible_blocks = visible;
        for (const bool copied : copied_pairs_choices(question.problem, stages)) {
          choice.copied_pairs = copied;
          configs->push_back(choice);
        }
      }
    }
  }
}

}  // namespace attune
