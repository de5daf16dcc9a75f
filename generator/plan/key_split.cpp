#include "generator/plan/key_split.h"

#include <algorithm>

#include "generator/config/kernel_config.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr int kMostWaves = 4;             // that parts may take: more of them are shorter, and fill the last one better
constexpr double kShareOfBestFill = 0.9;  // of the slots' time: fewer waves that come so near are taken

// Parts of `tiles` tiles, all equally long, that fill the slots: of one wave, or of a few where one would leave many
// slots idle.
std::int64_t filling_parts(std::int64_t tiles, std::int64_t slots) {
  const auto parts_in = [&](std::int64_t waves) { return waves * slots / tiles; };
  const auto fill_of = [&](std::int64_t waves) {
    return static_cast<double>(parts_in(waves) * tiles) / static_cast<double>(waves * slots);
  };
  if (fill_of(1) >= kShareOfBestFill) return parts_in(1);  // each call of the library asks
  double best = 0;
  for (int waves = 1; waves <= kMostWaves; ++waves) best = std::max(best, fill_of(waves));
  for (int waves = 1; waves < kMostWaves; ++waves) {
    if (fill_of(waves) >= kShareOfBestFill * best) return parts_in(waves);
  }
  return parts_in(kMostWaves);
}

// Keys that a tile sees at most: those of its band, as far as any query sees them.
std::int64_t most_keys(const AttentionProblem& problem, int tile_queries) {
  const MaskGeometry mask(problem);
  const std::int64_t band = mask.last_diagonal - mask.first_diagonal + tile_queries;
  const std::int64_t seen = mask.keys_of_query(problem.seq_q - 1).end - mask.keys_of_query(0).begin;
  return std::max<std::int64_t>(0, std::min(band, seen));
}

}  // namespace

std::int32_t KeySplit::parts_of(const AttentionProblem& problem) const {
  if (parts != kFillParts) return parts;
  const std::int64_t heads = problem.batch * problem.heads_q, rows = heads * problem.seq_q;
  const std::int64_t tiles = heads / tile_heads * ceil_div(problem.seq_q, tile_queries);
  const std::int64_t most =
      std::min({most_keys(problem, tile_queries) / least_keys, most_rows / rows, std::int64_t{kMostKeyParts}});
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, std::min(filling_parts(tiles, slots), most)));
}

}  // namespace attune
