#include "generator/families/forward_sm90/defaults.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "generator/config/cost_estimate.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/family.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/families/forward_sm90/tile_source.h"
#include "generator/families/invariance.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {
// By measurements on an H200 (docs/notebook/forward_sm90.md): with a mask or without, the rows of the smallest head dim
// that is large enough. Where persistent, CTAs may come by their tiles in each way. When O is rescaled is the dtype's.
struct HopperTile {
  bool masked;  // of a causal mask; they serve other masks that hide pairs, too
  int max_head_dim;
  std::string_view config;
};
constexpr HopperTile kHopperTiles[] = {
    {false, 16, "sm90 q192 kv128 st3 order=tile-major qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 32, "sm90 q192 kv128 st2 qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 64, "sm90 q192 kv112 st2 qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 64, "sm90 q128 kv128 st2 qreg qst2 overlap=within scheduler=static-persistent"},
    {false, 80, "sm90 q192 kv80 st2 qreg qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 96, "sm90 q192 kv96 st2 order=tile-major qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 128, "sm90 q192 kv64 st2 qst2 ordered overlap=within scheduler=static-persistent"},
    {false, 128, "sm90 q128 kv128 st2 qst2 overlap=within scheduler=static-persistent"},
    {false, 160, "sm90 q192 kv48 st3 ordered overlap=within scheduler=static-persistent"},
    {false, 192, "sm90 q128 kv64 st3 overlap=within scheduler=static-persistent"},
    {false, 256, "sm90 q128 kv64 st2 overlap=within scheduler=static-persistent"},
    {true, 32,
     "sm90 q192 kv128 st4 qreg order=l2-sections-reversed qst2 ordered overlap=within "
     "scheduler=static-persistent"},
    {true, 64, "sm90 q192 kv112 st2 qreg order=l2-sections-reversed qst2 overlap=within scheduler=static-persistent"},
    {true, 64, "sm90 q128 kv128 st3 qreg order=l2-sections-reversed qst2 overlap=within scheduler=static-persistent"},
    {true, 64, "sm90 q192 kv64 st3 order=l2-sections-reversed qst2 overlap=within scheduler=static-persistent"},
    {true, 80, "sm90 q192 kv64 st4 qreg order=l2-sections-reversed qst2 overlap=within scheduler=static-persistent"},
    {true, 96, "sm90 q192 kv64 st3 order=l2-sections-reversed qst2 ordered overlap=within scheduler=static-persistent"},
    {true, 128, "sm90 q192 kv64 st3 order=l2-sections-reversed ordered overlap=within scheduler=static-persistent"},
    {true, 128,
     "sm90 q192 kv80 st2 order=l2-sections-reversed qst2 ordered overlap=within scheduler=static-persistent"},
    {true, 128,
     "sm90 q128 kv64 st4 order=l2-sections-reversed qst2 ordered overlap=within scheduler=static-persistent"},
    {true, 160, "sm90 q192 kv48 st3 order=l2-sections-reversed ordered overlap=within scheduler=static-persistent"},
    {true, 160, "sm90 q128 kv64 st2 order=l2-sections-reversed ordered overlap=within scheduler=static-persistent"},
    {true, 192, "sm90 q128 kv64 st2 order=l2-sections-reversed ordered overlap=within scheduler=static-persistent"},
    {true, 256, "sm90 q128 kv64 st2 order=l2-sections-reversed overlap=within scheduler=static-persistent"},
};
// Where tiles of 16 queries and more CTAs an SM win: the exponentials bind.
constexpr int kMaxHeadDimOfSm80 = 16;

std::int64_t tiles_of(const AttentionProblem& problem, int block_q, bool packed) {
  return query_tile_count(problem, block_q, packed ? problem.heads_q / problem.heads_kv : 1);
}

// The row's config for so many queries a tile, without what they and the lengths make pointless.
KernelConfig fitted_to(const AttentionProblem& problem, const DeviceSpec& device, KernelConfig config, int block_q,
                       bool packed, int key_parts) {
  config.block_q = block_q;
  if (block_q == 64) config.warpgroup_order = WarpgroupOrder::free;
  const std::int64_t keys = std::max<std::int64_t>(32, round_up(problem.seq_kv, 16));
  if (!problem.invariant) config.block_kv = static_cast<int>(std::min<std::int64_t>(config.block_kv, keys));
  config.pack_gqa = packed;
  config.key_parts = key_parts;
  const std::int64_t parts =
      forward_sm90_split(forward_sm90_shape(problem, config, device), config, device).parts_of(problem);
  config = promoted_for(problem, config);
  const bool one_tile = tiles_of(problem, block_q, packed) * parts <= device.sm_count;  // for each CTA
  if (one_tile && config.promotion_blocks == 0 && !adds_parts_of_keys(problem, config)) {
    config.tile_scheduler = TileScheduler::single;
    config.q_stages = 1;
  }
  return config;
}

// What the cost model does not see of parts, measured on an H200 (docs/notebook/split_keys.md): where they are one
// wave, or equally long, CTAs that stay are 2 to 9 % faster, and products in a fixed order 4 %. In one wave all tiles
// begin together: their order means nothing, and sections of heads would be rated as if CTAs took turns at them.
KernelConfig as_parts_want(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  if (config.key_parts == 1) return config;
  const std::int64_t parts =
      forward_sm90_split(forward_sm90_shape(problem, config, device), config, device).parts_of(problem);
  const bool one_wave = tiles_of(problem, config.block_q, config.pack_gqa) * parts <= device.sm_count;
  KernelConfig wanted = config;
  if (one_wave || !lengthens_tiles(problem.mask)) wanted.tile_scheduler = TileScheduler::static_persistent;
  if (one_wave && config.tile_order == TileOrder::l2_sections_reversed)
    wanted.tile_order = TileOrder::head_major_reversed;
  if (config.block_q > 64) wanted.warpgroup_order = WarpgroupOrder::ordered;
  return infeasibility(problem, wanted, device).empty() ? wanted : config;
}

// With the sums of the class, and as many stages as shared memory has for its keys of a step.
KernelConfig invariant_row(const AttentionProblem& problem, const DeviceSpec& device, KernelConfig row) {
  row = with_invariant_sums(problem, row);
  const auto fits = [&] {
    return forward_sm90_shape(problem, row, device).shared.bytes() <=
           static_cast<std::size_t>(device.shared_bytes_per_block);
  };
  while (row.stages > 1 && !fits()) --row.stages;
  while (row.block_q > 64 && !fits()) row.block_q -= 64;
  return row;
}

}  // namespace

// Tiles of fewer queries leave fewer SMs without work, and so may those that hold all heads of a group, and parts of
// the keys; whether CTAs take one tile or several, and how they come by them, weighs differently by their number and
// length: of these the cost model chooses.
std::optional<KernelConfig> forward_sm90_default(const AttentionProblem& problem, const DeviceSpec& device) {
  const bool masked = hides_pairs(problem.mask), lengthens = lengthens_tiles(problem.mask);
  Reasons reasons;
  if (!supports_wgmma({problem, device}, &reasons)) return std::nullopt;
  if (masked && problem.head_dim <= kMaxHeadDimOfSm80 && !problem.invariant) return std::nullopt;
  std::optional<KernelConfig> best;
  double least = 0;
  const auto consider = [&](const KernelConfig& config) {
    if (!infeasibility(problem, config, device).empty()) return;
    const double time = estimate_cost(problem, config, device).microseconds;
    if (best && time >= least) return;
    best = config;
    least = time;
  };
  const auto consider_parts = [&](const KernelConfig& row, int block_q, bool packed, int key_parts) {
    const TileOrder other = lengthens ? TileOrder::head_major_reversed : TileOrder::head_major;
    for (const TileOrder order : {masked && !lengthens ? TileOrder::tile_major : row.tile_order, other}) {
      KernelConfig config = fitted_to(problem, device, row, block_q, packed, key_parts);
      config.tile_order = order;
      const bool persistent = config.tile_scheduler != TileScheduler::single;
      for (const TileSource& source : kTileSources) {
        if (source.tile_scheduler != TileScheduler::single && !persistent) continue;
        config.tile_scheduler = source.tile_scheduler;
        config.q_stages = source.q_stages;
        consider(config);
      }
    }
  };
  const auto consider_tiles = [&](const KernelConfig& row, int block_q, bool packed) {
    consider_parts(row, block_q, packed, 1);
    if (key_parts_may_win(problem, device, tiles_of(problem, block_q, packed), row.block_kv))
      consider_parts(row, block_q, packed, problem.invariant ? kFixedParts : kFillParts);
  };
  int head_dim = 0;  // of the rows that serve
  for (const HopperTile& tile : kHopperTiles) {
    if (tile.masked != masked || tile.max_head_dim < problem.head_dim) continue;
    if (head_dim != 0 && tile.max_head_dim != head_dim) break;
    head_dim = tile.max_head_dim;
    KernelConfig row = parse_config(tile.config);
    row.rescale_threshold = rescale_threshold_for(problem.dtype);
    if (problem.invariant) row = invariant_row(problem, device, row);
    for (int block_q = row.block_q; block_q >= 64; block_q -= 64) {
      consider_tiles(row, block_q, false);
      if (pack_gqa_may_win(problem, block_q)) consider_tiles(row, block_q, true);
    }
  }
  if (best) best = as_parts_want(problem, device, *best);
  if (best) best = with_pair_stages(problem, device, with_visible_blocks(problem, device, *best));
  return best;
}

}  // namespace attune
