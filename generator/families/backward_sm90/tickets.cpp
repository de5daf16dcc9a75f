#include "generator/families/backward_sm90/tickets.h"

#include <algorithm>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/problem/mask_geometry.h"

namespace attune {

std::vector<KernelConfig> with_ticket_choices(const AttentionProblem& problem, KernelConfig config,
                                              const DeviceSpec& device) {
  constexpr int kTicketBlocks[] = {1, 2, 3, 4}, kMostQueries = 256;
  std::vector<KernelConfig> configs;
  const bool takes_tickets = problem.has_fixed_order() && config.dq == DqAccumulation::ordered;
  for (const int blocks : kTicketBlocks) {
    if (blocks > 1 && (!takes_tickets || config.query_parts > 1 || blocks * config.block_q > kMostQueries)) continue;
    config.ticket_blocks = blocks;
    configs.push_back(config);
    if (!takes_tickets || config.tile_order != TileOrder::l2_sections) continue;
    KernelConfig larger = config;
    larger.l2_parts = 1;
    if (key_tile_section_heads(problem, larger, device) > key_tile_section_heads(problem, config, device))
      configs.push_back(larger);
  }
  return configs;
}

// Each tile must have added to the blocks that share a ticket before the next one may, so that tiles of a head follow
// each other `lag` steps apart. Under a causal mask a tile begins with blocks that the one behind does not see, which
// is as good as to begin later.
//
// A section of n heads has n T tiles. They come at the rate X at which slots finish tiles, and at most n / lag go on in
// a step: the mean wait is W = T lag / 2 - n T / (2 X), where X = slots / (steps + W). Where all tiles come at once the
// last one of a head ends T - 1 lags late.
double ticket_wait_steps(const AttentionProblem& problem, const KernelConfig& config, const TileSequence& sequence,
                         double steps, double slots) {
  if (config.dq != DqAccumulation::ordered) return 0;
  constexpr double kCaughtUp = 0.2;  // of a step, by what was scored while the tile waited
  const double ahead = lengthens_tiles(problem.mask) ? static_cast<double>(config.block_kv) / config.block_q : 0;
  const double lag = std::max(0.0, config.ticket_blocks - kCaughtUp - ahead);
  const auto tiles = static_cast<double>(sequence.tiles), heads = static_cast<double>(sequence.heads);
  if (tiles * heads <= slots) return (tiles - 1) * lag;
  const double section_tiles = tiles * static_cast<double>(std::min(sequence.section_heads, sequence.heads));
  const double wait = tiles * lag / 2 - section_tiles * steps / (2 * slots);
  return std::max(0.0, wait) / (1 + section_tiles / (2 * slots)) * tiles * heads / slots;
}

}  // namespace attune
