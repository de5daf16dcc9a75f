#include "generator/families/backward_sm90/defaults.h"

#include <string_view>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/cost.h"
#include "generator/families/backward_sm90/fused_dbias.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/backward_sm90/tickets.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

// By times on an H200 at head dims 16, 32, 64, 128 and 256 (docs/notebook/backward_sm90.md), and searches at 48 to 176:
// of those that fit the cost model chooses. Three stages where shared memory holds them: with two, loads come late. One
// stage of dS from 136 to 176, where two spill hundreds of bytes. dk_first and early_statistics are what is usual.
struct Tile {
  int least_head_dim, most_head_dim;
  std::string_view config;
  /// Of which problems alone: with a softcap or dropout, whose registers hold less; with dropout and no softcap.
  enum class Of { all, sloped, dropped } of = Of::all;
};
constexpr Tile kTiles[] = {
    {8, 40, "sm90 q128 kv128 st3 ordered overlap=within dq=atomic"},
    {8, 40, "sm90 q128 kv64 st3 overlap=within dq=atomic dsst1"},
    {8, 40, "sm90 q64 kv64 st3 overlap=within dq=atomic dsst1"},
    {8, 16, "sm90 q64 kv128 st3 cta2 ordered dq=atomic dsst1"},
    {48, 64, "sm90 q128 kv128 st3 ordered overlap=within dq=atomic"},
    {48, 64, "sm90 q64 kv128 st3 overlap=within dq=atomic dsst1"},
    {72, 88, "sm90 q64 kv128 st4 ordered overlap=within dq=atomic dsst1"},
    {96, 128, "sm90 q64 kv128 st3 ordered overlap=within dq=atomic"},
    {48, 128, "sm90 q64 kv64 st3 overlap=within dq=atomic dsst1"},
    {136, 144, "sm90 q64 kv128 st2 ordered dq=atomic dsst1 polled-loads"},
    {136, 192, "sm90 q64 kv64 st3 dq=atomic dsst1 split-dkdv"},
    {152, 176, "sm90 q64 kv64 st3 dq=atomic dsst1"},
    {152, 256, "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv"},
    {136, 256, "sm90 q64 kv64 st2 dq=atomic dsst1 split-dkdv"},
    {48, 64, "sm90 q64 kv128 st3 overlap=queued dq=atomic", Tile::Of::sloped},
    {48, 64, "sm90 q64 kv128 st3 ordered dq=atomic dsst1", Tile::Of::sloped},
    {72, 128, "sm90 q64 kv128 st3 ordered dq=atomic dq-adds=bulk", Tile::Of::sloped},
    {72, 128, "sm90 q64 kv128 st3 ordered overlap=within dq=atomic dq-by=softmax", Tile::Of::sloped},
    {48, 64, "sm90 q128 kv128 st3 ordered dq=atomic dsst1", Tile::Of::dropped},
};

// Whether the tiles of several heads alternate. Under a causal mask head by head was faster, by times on an H200:
// - with tickets, where heads of a group have tiles of their own, by 6 to 8 %: their tiles of the same keys end
//   together, and add to the same dK and dV in turn;
// - of wide heads with short sequences, by 1 to 10 %: as many heads are under way together anyway. Where tiles walk
//   through a group of heads, without tickets, it was 9 % slower.
bool tiles_alternate(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  if (key_tile_orders(problem, config.dq).back() != TileOrder::l2_sections) return false;
  if (lengthens_tiles(problem.mask)) {
    constexpr int kMostHeadDim = 128, kManyHeads = 8;
    const std::int64_t heads_under_way = device.sm_count / ceil_div(problem.seq_kv, config.block_kv);
    const bool walks = !problem.has_fixed_order() && problem.heads_q > problem.heads_kv && !adds_key_sums(config);
    if (problem.head_dim > kMostHeadDim && heads_under_way >= kManyHeads && !walks) return false;
    if (problem.has_fixed_order() && config.kv_grad_per_query_head) return false;
  }
  KernelConfig largest = config;
  if (config.dq == DqAccumulation::ordered) largest.l2_parts = 1;  // as with_ticket_choices() may have it
  return key_tile_section_heads(problem, largest, device) > 1;
}

// ptxas spills 600 to 720 bytes of what adds dK and dV by tickets in fp16 at head dim 168, and serializes products; at
// 160 and 176, and in bf16, it spills 200 at most.
bool spills_by_tickets(const AttentionProblem& problem, const KernelConfig& config) {
  return takes_tickets(config) && adds_key_sums(config) && !config.split_dkdv && problem.dtype == DataType::fp16 &&
         problem.head_dim == 168;
}

KernelConfig with_tensors_of_pairs(const AttentionProblem& problem, const DeviceSpec& device,
                                   const KernelConfig& config) {
  if (!problem.has_pair_tensors()) return config;
  return with_pair_stages(problem, device, with_fused_dbias(problem, with_visible_blocks(problem, device, config)));
}

}  // namespace

std::optional<KernelConfig> backward_sm90_default(const AttentionProblem& problem, const DeviceSpec& device) {
  std::optional<KernelConfig> best;
  double least = 0;
  for (const Tile& tile : kTiles) {
    if (problem.head_dim < tile.least_head_dim || problem.head_dim > tile.most_head_dim) continue;
    if (tile.of == Tile::Of::sloped && !has_slopes(problem)) continue;
    if (tile.of == Tile::Of::dropped && (problem.dropout == 0 || problem.softcap != 0)) continue;
    KernelConfig config = parse_config(tile.config);
    // Tiles that wait for tickets give loads the time.
    if (problem.has_fixed_order() && config.polled_loads) continue;
    if (problem.has_fixed_order()) config.dq = DqAccumulation::ordered;
    config.dk_first = usual_dk_first(problem, config);
    for (const bool apart : kv_grad_choices(problem)) {
      config.kv_grad_per_query_head = apart;
      for (const int parts : query_part_choices(problem, config, device)) {
        config.query_parts = parts;
        config.early_statistics = usual_early_statistics(problem, config);
        config.tile_order = TileOrder::head_major;
        if (!infeasibility(problem, config, device).empty() || spills_by_tickets(problem, config)) continue;
        if (tiles_alternate(problem, config, device)) config.tile_order = TileOrder::l2_sections;
        for (KernelConfig choice : with_ticket_choices(problem, config, device)) {
          choice.early_statistics = usual_early_statistics(problem, choice);
          choice = with_tensors_of_pairs(problem, device, choice);
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
