#include "generator/families/backward_common/tile_sequence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {
constexpr std::int64_t kWavesLookedAt = 4, kTicksOfLongest = 256;
}  // namespace

std::int64_t TileSequence::tile(std::int64_t number) const {
  const std::int64_t section_tiles = section_heads * tiles, section = number / section_tiles;
  const std::int64_t here = std::min(section_heads, heads - section * section_heads);
  const std::int64_t tile = (number - section * section_tiles) / here;
  return last_first ? tiles - 1 - tile : tile;
}

double uneven_steps(const AttentionProblem& problem, const TileRowCounts& rows, const TileSequence& sequence,
                    std::int64_t slots, double around) {
  const std::int64_t all = sequence.tiles * sequence.heads, count = std::min(all, kWavesLookedAt * slots);
  const MaskGeometry mask(problem);
  std::vector<double> lengths;
  lengths.reserve(static_cast<std::size_t>(count));
  double sum = 0, longest = 0;
  for (std::int64_t number = all - count; number < all; ++number) {
    const std::int64_t first = sequence.tile(number) * rows.resident;
    const BlockRange blocks = rows.of_keys ? mask.query_blocks(first, rows.resident, rows.streamed)
                                           : mask.key_blocks(first, rows.resident, rows.streamed);
    lengths.push_back(static_cast<double>(blocks.all()) + around);
    sum += lengths.back();
    longest = std::max(longest, lengths.back());
  }
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
