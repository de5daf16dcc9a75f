#include "generator/families/backward_sm80/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "generator/error.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_sm80/cost.h"
#include "generator/families/backward_sm80/shape.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {

// Head dims and the tiles they take, by times on an H200 (docs/notebook/backward_sm80.md): the first that fit as many
// CTAs on an SM as they were chosen for. The rows of a head dim that follow serve smaller devices, and problems of few
// or short heads.
struct Tiles {
  int least_head_dim, most_head_dim;
  int block_q, block_kv, warps, query_warps, stages;
  int ctas;               // of the kernel of key tiles that shared memory must hold
  bool dq_first = false;  // where it adds to dQ
};
constexpr Tiles kDefaults[] = {
    {8, 16, 32, 64, 2, 1, 2, 4},            // small CTAs, as many as registers allow
    {24, 24, 32, 96, 2, 1, 2, 4},           // 48 keys a warp where registers hold them
    {32, 32, 32, 64, 2, 1, 2, 4},           //
    {40, 40, 64, 128, 4, 1, 2, 2},          // 32 keys a warp and all columns
    {48, 56, 32, 128, 4, 1, 2, 2},          // the same; 7 chunks of columns do not halve
    {64, 64, 64, 96, 4, 2, 2, 2},           // 48 keys a warp of half of the columns
    {72, 72, 32, 128, 4, 1, 2, 2},          // nor do 9
    {80, 80, 64, 96, 4, 2, 2, 2},           //
    {88, 96, 96, 128, 8, 2, 2, 1},          // 48 keys a warp would spill
    {104, 112, 64, 64, 4, 2, 2, 2},         // the widest heads of which two CTAs fit with room
    {120, 160, 64, 128, 8, 2, 2, 1},        // 32 keys a warp of half of the columns
    {168, 176, 64, 128, 8, 2, 2, 1, true},  // spills fewer so
    {184, 184, 64, 96, 8, 4, 2, 1},         // 48 keys a warp of a quarter of the columns
    {192, 192, 64, 96, 8, 4, 2, 1, true},   //
    {200, 216, 64, 96, 8, 4, 2, 1},         //
    {224, 224, 128, 64, 8, 4, 1, 1, true},  //
    {40, 64, 32, 64, 2, 1, 2, 2},           // from here on for smaller devices and problems
    {56, 128, 64, 128, 8, 2, 2, 1},         //
    {56, 128, 64, 128, 8, 2, 1, 1},         //
    {56, 128, 64, 64, 4, 2, 2, 1},          //
    {104, 128, 64, 64, 4, 2, 3, 1},         // one CTA on an SM: few long tiles spread out better
    {56, 128, 64, 64, 4, 2, 1, 1},          //
    {56, 128, 32, 32, 4, 2, 2, 1},          //
    {40, 128, 32, 32, 2, 1, 2, 1},          //
    {8, 64, 32, 32, 1, 1, 2, 1},            //
    {136, 256, 64, 64, 8, 4, 2, 1},         // and the best for 232 to 256
    {136, 256, 64, 64, 8, 4, 1, 1},         //
    {136, 256, 64, 32, 4, 4, 1, 1},         //
    {136, 256, 32, 32, 4, 2, 1, 1},
};
// A row gives way to a later one only if the model rates that faster by more than it errs. The first were timed to be
// the best at 4096 queries and keys, which says little of short ones.
constexpr double kDoubt = 0.91, kDoubtOfShort = 0.99;
constexpr std::int64_t kShort = 600;

// Under a causal mask the longest tiles of several heads come first, lest the last head begin with its longest when all
// others are done; with a section of one head that would be the order of rows.
TileOrder default_order(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  if (problem.has_fixed_order() || !lengthens_tiles(problem.mask)) return TileOrder::head_major;
  return key_tile_section_heads(problem, config, device) > 1 ? TileOrder::l2_sections : TileOrder::head_major;
}

// Whether a group's heads, and parts of the queries, have tiles of their own: they fill the SMs where common tiles are
// few, and pay for sums in fp32: dK and dV of each tile, in place of one's of the same keys, zeros, adds and one more
// launch. Returns the config and the time that the model expects of it.
std::pair<KernelConfig, double> with_tiles_by_default(const AttentionProblem& problem, KernelConfig config,
                                                      const DeviceSpec& device) {
  std::pair<KernelConfig, double> best(config, std::numeric_limits<double>::infinity());
  for (const bool apart : kv_grad_choices(problem)) {
    config.kv_grad_per_query_head = apart;
    for (const int parts : query_part_choices(problem, config, device)) {
      config.query_parts = parts;
      config.tile_order = default_order(problem, config, device);
      const double microseconds = backward_sm80_cost(problem, config, device).microseconds;
      if (microseconds < best.second) best = {config, microseconds};
    }
  }
  return best;
}

}  // namespace

KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device) {
  KernelConfig config = default_fields(FamilyWord::sm80);
  const double doubt = std::min(problem.seq_q, problem.seq_kv) <= kShort ? kDoubtOfShort : kDoubt;
  std::optional<KernelConfig> best;
  double least = 0;
  for (const Tiles& tiles : kDefaults) {
    if (problem.head_dim < tiles.least_head_dim || problem.head_dim > tiles.most_head_dim) continue;
    config.block_q = tiles.block_q;
    config.block_kv = tiles.block_kv;
    config.warps = tiles.warps;
    config.query_warps = tiles.query_warps;
    config.stages = tiles.stages;
    // Where walks are short, sums of dQ in memory cost more than S and dP computed twice.
    for (const DqAccumulation dq : {problem.has_fixed_order() ? DqAccumulation::ordered : DqAccumulation::atomic,
                                    DqAccumulation::separate_kernel}) {
      config.dq = dq;
      config.dq_first = tiles.dq_first && dq != DqAccumulation::separate_kernel;
      config.kv_grad_per_query_head = false;
      config.query_parts = 1;
      config.tile_order = default_order(problem, config, device);
      if (sums_long_dq_in_registers(problem, config)) continue;
      if (!infeasibility(problem, config, device).empty()) continue;
      const std::size_t bytes = backward_sm80_shape(problem, config).dkdv_shared.bytes();
      const auto of_sm =
          static_cast<std::size_t>(tiles.ctas) * (bytes + static_cast<std::size_t>(device.shared_bytes_reserved));
      if (of_sm > static_cast<std::size_t>(device.shared_bytes_per_sm)) continue;
      const auto [fitted, microseconds] = with_tiles_by_default(problem, config, device);
      if (best && microseconds >= doubt * least) continue;
      best = fitted;
      least = microseconds;
    }
  }
  if (best) return *best;
  throw Error(ErrorCode::unsupported, fmt::format("no backward config of head dim {} fits {}: {}", problem.head_dim,
                                                  device.name, infeasibility(problem, config, device).front()));
}

}  // namespace attune
