#include "generator/families/backward_common/tile_sequence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {
constexpr std::int64_t kWavesLookedAt = 4, kRoundsLookedAt = 64, kTicksOfLongest = 256;

// What the busiest of `slots` has of tiles that begin with a round which goes forwards.
double longest_of_rounds(const std::vector<double>& lengths, std::int64_t slots) {
  std::vector<double> sums(static_cast<std::size_t>(slots));
  for (std::int64_t i = 0; i < std::ssize(lengths); ++i) {
    const std::int64_t place = i % slots, slot = i / slots % 2 == 0 ? place : slots - 1 - place;
    sums[static_cast<std::size_t>(slot)] += lengths[static_cast<std::size_t>(i)];
  }
  return *std::max_element(sums.begin(), sums.end());
}
}  // namespace

std::int64_t TileSequence::tile(std::int64_t number) const {
  const std::int64_t section_tiles = section_heads * tiles, section = number / section_tiles;
  const std::int64_t here = std::min(section_heads, heads - section * section_heads);
  const std::int64_t tile = (number - section * section_tiles) / here;
  return last_first ? tiles - 1 - tile : tile;
}

double uneven_steps(const AttentionProblem& problem, const TileRowCounts& rows, const TileSequence& sequence,
                    std::int64_t slots, double around) {
  const std::int64_t all = sequence.tiles * sequence.heads;
  std::int64_t begin = std::max<std::int64_t>(0, all - (sequence.in_rounds ? kRoundsLookedAt : kWavesLookedAt) * slots);
  if (sequence.in_rounds) begin = round_up(begin, 2 * slots);
  const MaskGeometry mask(problem);
  std::vector<double> lengths;
  lengths.reserve(static_cast<std::size_t>(all - begin));
  double sum = 0, longest = 0;
  for (std::int64_t number = begin; number < all; ++number) {
    const std::int64_t first = sequence.tile(number) * rows.resident;
    const BlockRange blocks = rows.of_keys ? mask.query_blocks(first, rows.resident, rows.streamed)
                                           : mask.key_blocks(first, rows.resident, rows.streamed);
    lengths.push_back(static_cast<double>(blocks.all()) / static_cast<double>(sequence.parts) + around);
    sum += lengths.back();
    longest = std::max(longest, lengths.back());
  }
  if (sequence.in_rounds) return longest_of_rounds(lengths, slots) - sum / static_cast<double>(slots);
  // Slots that fall free at each tick of a clock.
  const double tick = longest / kTicksOfLongest;
  std::vector<std::int64_t> ends(static_cast<std::size_t>((kWavesLookedAt + 1) * (kTicksOfLongest + 1) + 1));
  std::int64_t now = 0, end = 0, free = slots;
  for (const double length : lengths) {
    while (free == 0) free += ends[static_cast<std::size_t>(++now)];
    --free;
    const std::int64_t then = now + std::max<std::int64_t>(1, std::llround(length / tick));
    ++ends[static_cast<std::size_t>(then)];
    end = std::max(end, then);
  }
  return std::max(0.0, static_cast<double>(end) * tick - sum / static_cast<double>(slots));
}

}  // namespace attune
