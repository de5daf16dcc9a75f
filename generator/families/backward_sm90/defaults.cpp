#include "generator/families/backward_sm90/defaults.h"

#include <string_view>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/cost.h"
#include "generator/families/backward_sm90/tickets.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {

// By times on an H200 at head dims 16, 32, 64, 128 and 256 (docs/notebook/backward_sm90.md), and searches at 48 to 144:
// of those that fit the cost model chooses. Three stages where shared memory holds them: with two, loads come late. One
// stage of dS at 136 and 144, where two spill hundreds of bytes. The order is that of tiles which grow shorter: the
// longest ones of several heads first, or head by head. dk_first and early_statistics are what is usual.
struct Tile {
  int least_head_dim, most_head_dim;
  std::string_view config;
};
constexpr Tile kTiles[] = {
    {8, 40, "sm90 q128 kv128 st3 order=l2-sections ordered overlap=within dq=atomic"},
    {8, 40, "sm90 q128 kv64 st3 order=l2-sections overlap=within dq=atomic dsst1"},
    {8, 40, "sm90 q64 kv64 st3 order=l2-sections overlap=within dq=atomic dsst1"},
    {8, 16, "sm90 q64 kv128 st3 order=l2-sections cta2 ordered dq=atomic dsst1"},
    {48, 64, "sm90 q128 kv128 st3 order=l2-sections ordered overlap=within dq=atomic"},
    {48, 64, "sm90 q64 kv128 st3 order=l2-sections overlap=within dq=atomic dsst1"},
    {72, 88, "sm90 q64 kv128 st4 order=l2-sections ordered overlap=within dq=atomic dsst1"},
    {96, 128, "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within dq=atomic"},
    {48, 128, "sm90 q64 kv64 st3 order=l2-sections overlap=within dq=atomic dsst1"},
    {136, 144, "sm90 q64 kv128 st2 order=l2-sections ordered dq=atomic dsst1 polled-loads"},
    {136, 192, "sm90 q64 kv64 st3 order=l2-sections dq=atomic dsst1 split-dkdv"},
    {152, 256, "sm90 q64 kv64 st2 order=l2-sections dq=atomic polled-loads split-dkdv"},
    {136, 256, "sm90 q64 kv64 st2 order=l2-sections dq=atomic dsst1 split-dkdv"},
};

}  // namespace

std::optional<KernelConfig> backward_sm90_default(const AttentionProblem& problem, const DeviceSpec& device) {
  std::optional<KernelConfig> best;
  double least = 0;
  for (const Tile& tile : kTiles) {
    if (problem.head_dim < tile.least_head_dim || problem.head_dim > tile.most_head_dim) continue;
    KernelConfig config = parse_config(tile.config);
    // Tiles that wait for tickets give loads the time.
    if (problem.deterministic && config.polled_loads) continue;
    if (problem.deterministic) config.dq = DqAccumulation::ordered;
    config.dk_first = usual_dk_first(problem, config);
    const bool sections = config.tile_order == TileOrder::l2_sections &&
                          key_tile_orders(problem, config.dq).back() == TileOrder::l2_sections;
    for (const bool apart : kv_grad_choices(problem)) {
      config.kv_grad_per_query_head = apart;
      // Under a causal mask heads of a group that alternate were 6 to 8 % slower than head by head: their tiles of the
      // same keys end together, and add to the same dK and dV in turn.
      const bool alternate = sections && !(problem.deterministic && apart && lengthens_tiles(problem.mask));
      for (const int parts : query_part_choices(problem, config, device)) {
        config.query_parts = parts;
        config.early_statistics = usual_early_statistics(problem, config);
        config.tile_order = TileOrder::head_major;
        if (!infeasibility(problem, config, device).empty()) continue;
        if (alternate && key_tile_section_heads(problem, config, device) > 1)
          config.tile_order = TileOrder::l2_sections;
        for (KernelConfig choice : with_ticket_choices(problem, config, device)) {
          choice.early_statistics = usual_early_statistics(problem, choice);
          const double microseconds = backward_sm90_cost(problem, choice, device).microseconds;
          if (best && microseconds >= least) continue;
          best = choice;
          least = microseconds;
        }
      }
    }
  }
  return best;
}

}  // namespace attune
