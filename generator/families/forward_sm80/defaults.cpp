#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "generator/error.h"
#include "generator/families/forward_sm80/cost.h"
#include "generator/families/forward_sm80/defaults.h"
#include "generator/families/forward_sm80/plan.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/invariance.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {
// The numbers to retune. Tiles for long sequences: of a device, the first row that its shared memory and the head dim
// allow.
struct Tile {
  int min_shared_kib;  // of an SM
  int max_head_dim;
  int block_q, block_kv, warps, stages;
  bool q_in_registers;
  int ctas_per_sm;
};
constexpr Tile kTiles[] = {
    // 228 KiB: Hopper; by measurements on an H200 (which, and which head dims: docs/notebook/forward_sm80.md)
    {200, 16, 64, 64, 4, 3, true, 1},
    {200, 32, 128, 64, 4, 3, false, 3},
    {200, 64, 128, 64, 4, 3, true, 1},
    {200, 80, 128, 64, 4, 2, true, 1},
    {200, 104, 128, 64, 4, 1, false, 1},
    {200, 112, 128, 64, 4, 2, false, 1},
    {200, 120, 128, 48, 4, 2, false, 1},
    {200, 128, 128, 64, 4, 1, false, 1},
    {200, 160, 128, 32, 4, 2, false, 1},
    {200, 192, 128, 64, 8, 2, true, 1},
    {200, 248, 128, 64, 8, 2, false, 1},
    {200, 256, 128, 96, 8, 1, false, 1},
    // 164 KiB: A100
    {128, 32, 64, 64, 4, 3, true, 1},
    {128, 64, 128, 64, 4, 2, true, 1},
    {128, 128, 128, 64, 4, 1, false, 1},
    {128, 256, 128, 64, 8, 1, false, 1},
    // 100 KiB: GeForce and its like
    {0, 32, 64, 64, 4, 3, true, 1},
    {0, 64, 128, 64, 4, 2, true, 1},
    {0, 128, 128, 32, 4, 1, false, 1},
    {0, 256, 128, 32, 8, 1, false, 1},
};
// Where every tile was timed for one head dim, mask and range of lengths, and another one won (H200): these rows go
// before those above, and before the small tiles of short sequences.
struct Exception {
  int head_dim;
  MaskKind mask;
  std::int64_t min_seq, max_seq;
  Tile tile;
};
constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();
constexpr Exception kExceptions[] = {
    {16, MaskKind::causal, 257, 512, {200, 16, 64, 32, 2, 3, true, 1}},
    {72, MaskKind::causal, 257, 512, {200, 72, 128, 32, 4, 3, true, 1}},
    {72, MaskKind::none, 65, kAnyLength, {200, 72, 128, 64, 4, 3, true, 1}},
    {128, MaskKind::causal, 257, 512, {200, 128, 128, 64, 4, 2, false, 1}},
    // More keys a step gain 2 % where they divide the length, and lose more where they do not.
    {256, MaskKind::none, 65, 512, {200, 256, 128, 64, 8, 1, false, 1}},
};
// Warps of 16 rows hold Q in registers up to this estimate.
constexpr int kMaxEstimateWithQ = 230;
// The share of a default's time below which sections of heads take its place.
constexpr double kSectionsWin = 0.9;
// Up to these lengths tiles of 64 queries win: under a mask a tile of 128 spends much of its work on masked scores.
constexpr int kShortSequence = 64, kShortMaskedSequence = 512;

const Tile* exception_for(const AttentionProblem& problem, const DeviceSpec& device) {
  for (const Exception& exception : kExceptions) {
    if (device.shared_bytes_per_sm >= exception.tile.min_shared_kib * 1024 && problem.head_dim == exception.head_dim &&
        problem.mask == exception.mask && problem.seq_q >= exception.min_seq && problem.seq_q <= exception.max_seq)
      return &exception.tile;
  }
  return nullptr;
}

const Tile& tile_for(const AttentionProblem& problem, const DeviceSpec& device) {
  if (const Tile* exception = exception_for(problem, device)) return *exception;
  return *std::find_if(std::begin(kTiles), std::end(kTiles), [&](const Tile& tile) {
    return device.shared_bytes_per_sm >= tile.min_shared_kib * 1024 && problem.head_dim <= tile.max_head_dim;
  });
}

bool q_fits_registers(const AttentionProblem& problem, KernelConfig config) {
  config.q_in_registers = true;  // the estimate counts Q only where it is held
  return forward_sm80_shape(problem, config).registers_estimate <= kMaxEstimateWithQ;
}

// Short sequences, and too few tiles for all SMs, take smaller tiles; lengths need not be multiples of anything. Bounds
// are powers of two, as those of the dispatch classes, so that all lengths of a class have one default.
void shrink_to_lengths(const AttentionProblem& problem, const DeviceSpec& device, KernelConfig* config) {
  const std::int64_t heads = problem.batch * problem.heads_q;
  const std::int64_t tiles = ceil_div(problem.seq_q, config->block_q) * heads;
  const bool too_few = tiles < device.sm_count;
  const int short_sequence = hides_pairs(problem.mask) ? kShortMaskedSequence : kShortSequence;
  if ((problem.seq_q <= short_sequence && exception_for(problem, device) == nullptr) || too_few) {
    config->block_q = 64;
    config->warps = 4;
    config->stages = 2;
    config->ctas_per_sm = 1;
    // Small tiles read K and V more often: of short sequences a head's stay in L2 while its tiles follow each other.
    if (lengthens_tiles(problem.mask) && !too_few) config->tile_order = TileOrder::head_major_reversed;
    // Wide heads spill with more than 32 keys, by up to a kilobyte.
    if (!problem.invariant)
      config->block_kv = problem.head_dim > 160 ? 32 : too_few && problem.head_dim <= 128 ? 128 : 64;
    config->q_in_registers = q_fits_registers(problem, *config);
  }
  while (config->warps > 1 && problem.seq_q <= config->block_q / 2) {
    config->block_q /= 2;
    config->warps /= 2;
  }
  while (!problem.invariant && config->block_kv > 16 && problem.seq_kv <= config->block_kv / 2) {
    config->block_kv = std::max(16, config->block_kv / 32 * 16);
  }
}

// One step towards fewer resources; false if there is none left.
bool shrink(const AttentionProblem& problem, KernelConfig* config) {
  if (config->ctas_per_sm > 1) {
    --config->ctas_per_sm;
  } else if (config->q_in_registers) {
    config->q_in_registers = false;
  } else if (config->stages > 1) {
    --config->stages;
  } else if (config->block_kv > 16 && !problem.invariant) {
    config->block_kv = std::max(16, config->block_kv / 32 * 16);
  } else if (config->block_q / config->warps > 16) {
    config->block_q -= 16 * config->warps;
  } else if (config->warps > 1) {
    config->warps /= 2;
    config->block_q = 16 * config->warps;
  } else {
    return false;
  }
  return true;
}

// The config, or one with parts of the keys where the cost model likes that better, for all lengths of a dispatch class
// alike. Parts may want fewer keys a step, so that an SM holds more CTAs.
KernelConfig with_parts(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  const AttentionProblem of_class = dispatch_class(problem).representative;
  if (!forward_sm80_parts_may_win(of_class, config, device)) return config;
  KernelConfig best = config;
  double least = forward_sm80_cost(of_class, config, device).microseconds;
  for (const int block_kv : {config.block_kv, 64, 32}) {
    if (block_kv > config.block_kv) continue;
    for (const int stages : {2, 3}) {
      KernelConfig split = config;
      split.key_parts = problem.invariant ? kFixedParts : kFillParts;
      split.block_kv = block_kv;
      split.stages = stages;
      if (!infeasibility(problem, split, device).empty()) continue;
      const double time = forward_sm80_cost(of_class, split, device).microseconds;
      if (time >= least) continue;
      best = split;
      least = time;
    }
  }
  return best;
}

// The same with tiles in sections of heads whose keys stay in L2, where the model expects that to be faster by more
// than it errs: of many heads at once K and V come from device memory again for each wave of tiles, for which boards
// with GDDR wait (an L4, more than twice as long).
KernelConfig with_sections(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  if (config.tile_order != TileOrder::tile_major_reversed) return config;
  KernelConfig sections = config;
  sections.tile_order = TileOrder::l2_sections_reversed;
  if (!infeasibility(problem, sections, device).empty()) return config;
  const double time = forward_sm80_cost(problem, sections, device).microseconds;
  return time < kSectionsWin * forward_sm80_cost(problem, config, device).microseconds ? sections : config;
}

// Where queries are few, tiles of the heads of a group, of as few warps as hold their rows: K and V, which is what such
// a problem waits for, are read once for all heads. Wide rows whose chunks are no power of two take a register for the
// address of each chunk that a thread copies: with one warp 500 bytes and more are spilled, with four and 16 keys none.
std::vector<KernelConfig> configs_of_groups(const AttentionProblem& problem, KernelConfig config) {
  constexpr int kRowsOfWarp = 16, kMostWarps = 4, kMostHeadDimOfOneWarp = 96;
  const bool regular = std::has_single_bit(static_cast<unsigned>(forward_sm80_shape(problem, config).chunks)) ||
                       problem.head_dim <= kMostHeadDimOfOneWarp;
  const std::int64_t rows = problem.seq_q * problem.heads_q / problem.heads_kv;
  config.pack_gqa = true;
  config.warps = regular ? 1 : kMostWarps;
  while (config.warps < kMostWarps && rows > config.warps * kRowsOfWarp) config.warps *= 2;
  config.block_q = config.warps * kRowsOfWarp;
  config.ctas_per_sm = 1;
  std::vector<KernelConfig> configs;
  if (!pack_gqa_may_win(problem, config.block_q)) return configs;
  for (const int block_kv : regular ? std::vector{32, 48, 64, 128} : std::vector{16}) {
    config.block_kv = block_kv;
    config.q_in_registers = regular && q_fits_registers(problem, config);
    for (const int stages : {2, 3}) {
      config.stages = stages;
      configs.push_back(config);
    }
  }
  return configs;
}

}  // namespace

KernelConfig forward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device) {
  const Tile& tile = tile_for(problem, device);
  KernelConfig config;
  config.block_q = tile.block_q;
  config.block_kv = tile.block_kv;
  config.warps = tile.warps;
  config.stages = tile.stages;
  config.q_in_registers = tile.q_in_registers;
  config.ctas_per_sm = tile.ctas_per_sm;
  // Under a causal mask the longest tiles of all heads first: the last wave is short, and heads that walk in step share
  // L2.
  config.tile_order = lengthens_tiles(problem.mask) ? TileOrder::tile_major_reversed : TileOrder::head_major;
  config.rescale_threshold = rescale_threshold_for(problem.dtype);
  if (problem.invariant) config = with_invariant_sums(problem, config);
  shrink_to_lengths(problem, device, &config);
  while (!infeasibility(problem, config, device).empty()) {
    if (shrink(problem, &config)) continue;
    throw Error(ErrorCode::unsupported, fmt::format("no config of head dim {} fits {}: {}", problem.head_dim,
                                                    device.name, infeasibility(problem, config, device).front()));
  }
  // For all lengths of a dispatch class alike.
  const AttentionProblem of_class = dispatch_class(problem).representative;
  KernelConfig best = with_parts(problem, device, config);
  for (const KernelConfig& packed : configs_of_groups(of_class, config)) {
    if (!infeasibility(problem, packed, device).empty()) continue;
    const KernelConfig other = with_parts(problem, device, packed);
    const auto time = [&](const KernelConfig& choice) {
      return forward_sm80_cost(of_class, choice, device).microseconds;
    };
    if (time(other) < time(best)) best = other;
  }
  best = with_sections(of_class, device, best);
  return promoted_for(problem, best);
}

}  // namespace attune
