#include "generator/families/backward_sm90/shape.h"

#include <algorithm>

#include "generator/device/register_limit.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/shared/wgmma.h"
#include "generator/problem/element_type.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr std::size_t kTicketBytes = 16, kNumberBytes = 4, kStatisticAlignment = 128;
constexpr int kWarps = kWarpgroupThreads / 32;
constexpr int kLeastColumns = 32;  // of a product for dQ: of fewer the A operand, dS, would be read for little

BackwardBarriers barriers_of(const KernelConfig& config, int do_stages, int softmax_warpgroups) {
  BackwardBarriers barriers;
  const auto take = [&](int count) {
    const int begin = barriers.bytes;
    barriers.bytes += count * kMbarrierBytes;
    return begin;
  };
  const auto ring = [&](const char* name, int stages, int fillers, int readers) {
    const int full = take(stages), empty = take(stages);
    return BackwardBarriers::Ring{name, stages, full, empty, fillers, readers};
  };
  const int softmax_warps = kWarps * softmax_warpgroups;
  const int ds_warps = kWarps * config.block_kv / kWarpgroupRows;
  barriers.rings[0] = ring("q", config.stages, 1, softmax_warps);
  barriers.rings[1] = ring("d_o", do_stages, 1, softmax_warps);
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax;
  barriers.rings[2] = ring("ds", config.ds_stages, ds_warps, dq_by_softmax ? softmax_warps : kWarps * config.cluster);
  // For each 64 keys a ring of its own.
  if (config.split_dkdv)
    barriers.rings[3] = ring("p", config.ds_stages * config.block_kv / kWarpgroupRows, kWarps, kWarps);
  barriers.k_full = take(1);
  barriers.v_full = take(1);
  if (config.tile_scheduler != TileScheduler::single) {
    barriers.k_empty = take(1);
    barriers.v_empty = take(1);
    barriers.rings[4] = ring("tile", kTileNumbers, 1, softmax_warps + kWarps);
  }
  if (config.cluster > 1) barriers.peer_ds_full = take(config.ds_stages);
  return barriers;
}

// What the dQ warpgroup keeps by default: its accumulators, and as little beside them as kernels were seen to need that
// spill nothing. Of launches with more warpgroups each thread has what is left of fewer registers.
int fewest_dq_registers(int accumulators) {
  constexpr int kBeside = 40;
  return round_up(accumulators + kBeside, 8);
}

// What the warpgroup that only loads keeps: the fewest that setmaxnreg takes.
constexpr int kProducerRegisters = 24;

// left: registers of a thread beside accumulators. A second P of 16 bits fits beside so many others by kernels of which
// ptxas spills some, or none: those of a tanh are more, but for tiles whose warpgroups compute dQ themselves.
SlopesPlace slopes_place(const AttentionProblem& problem, const KernelConfig& config, int left) {
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax;
  const int others = problem.softcap != 0 && !dq_by_softmax ? 60 : 32;
  if (!has_slopes(problem)) return SlopesPlace::none;
  if (config.split_dkdv) return SlopesPlace::registers;
  if (problem.softcap == 0 && config.overlap == Overlap::none) return SlopesPlace::p;
  return config.block_q / 4 + others <= left ? SlopesPlace::registers : SlopesPlace::shared;
}

}  // namespace

int do_stages_of(const KernelConfig& config) { return config.do_stages > 0 ? config.do_stages : config.stages; }

DqProducts dq_products(const AttentionProblem& problem, const KernelConfig& config) {
  const int all = problem.head_dim, columns = config.dq_columns;
  if (all < columns + kLeastColumns) return {all, 1, all};
  const int count = ceil_div(all, columns);
  return {columns, count, all - (count - 1) * columns};
}

DqShares dq_shares(const AttentionProblem& problem, const KernelConfig& config) {
  constexpr int kLeastQueries = 8;  // of wgmma's N
  const int warpgroups = config.block_kv / kWarpgroupRows, row_tiles = ceil_div(problem.head_dim, kWarpgroupRows);
  if (warpgroups % row_tiles != 0) return {row_tiles, 0};
  const int parts = warpgroups / row_tiles;
  return {row_tiles, config.block_q % (parts * kLeastQueries) == 0 ? config.block_q / parts : 0};
}

BackwardSm90Shape backward_sm90_shape(const AttentionProblem& problem, const KernelConfig& config,
                                      const DeviceSpec& device) {
  BackwardSm90Shape shape;
  const int head_dim = problem.head_dim, q = config.block_q, kv = config.block_kv;
  shape.softmax_warpgroups = kv / kWarpgroupRows * (config.split_dkdv ? 2 : 1);
  shape.threads = (shape.softmax_warpgroups + 1) * kWarpgroupThreads;
  shape.panel_columns = panel_columns(head_dim);
  shape.panels = ceil_div(head_dim, shape.panel_columns);
  shape.do_stages = do_stages_of(config);

  const auto element_bytes = static_cast<std::size_t>(size_of(problem.dtype));
  const auto add_tiles = [&](const char* name, const char* label, int stages, int rows, int columns) {
    const int panels = ceil_div(columns, shape.panel_columns);
    shape.shared.add({name, label, {stages, panels, rows, shape.panel_columns}, element_bytes}, kSwizzledTileAlignment);
  };
  add_tiles("kKOffset", "K ", 1, kv, head_dim);
  add_tiles("kVOffset", "V ", 1, kv, head_dim);
  add_tiles("kQOffset", "Q ", config.stages, q, head_dim);
  add_tiles("kDoOffset", "dO", shape.do_stages, q, head_dim);
  add_tiles("kDsOffset", "dS", config.ds_stages, q, kv);
  if (config.pair_stages > 0) {
    shape.pair_tiles = PairTiles(problem, kv);
    shape.pair_tiles.add_to(&shape.shared, config.pair_stages, q);
  }
  if (config.cluster > 1) {
    const DqProducts dq = dq_products(problem, config);
    add_tiles("kPeerKOffset", "K  of the other CTA", 1, kv, dq.columns * dq.count / config.cluster);
    add_tiles("kPeerDsOffset", "dS of the other CTA", config.ds_stages, q, kv);
  }
  if (config.split_dkdv && !config.p_in_ds)
    shape.shared.add({"kPOffset", "P ", {config.ds_stages, kv / kWarpgroupRows, q, kWarpgroupRows}, element_bytes},
                     kTicketBytes);
  if (config.dq_adds == DqAdds::bulk) {
    const bool by_softmax = config.dq_by == DqWarpgroups::softmax;
    const int columns = by_softmax ? head_dim : dq_products(problem, config).columns,
              queries = by_softmax ? q : kWarpgroupRows;
    shape.shared.add({"kDqOffset", "dQ", {columns, queries}, sizeof(float), ", fp32"}, kStatisticAlignment);
  }
  shape.shared.add({"kLseOffset", "LSE", {config.stages, q}, sizeof(float), ", fp32"}, kStatisticAlignment);
  shape.shared.add({"kDeltaOffset", "delta", {shape.do_stages, q}, sizeof(float), ", fp32"}, kStatisticAlignment);
  if (problem.dropout != 0) {
    shape.shared.add(
        {"kDropoutOffset", "dropout of the warps", {4 * shape.softmax_warpgroups, 4}, sizeof(std::uint32_t)}, 16);
  }
  if (takes_tickets(config)) shape.shared.add({"kTicketOffset", "number of the tile", {}, kTicketBytes}, kTicketBytes);
  if (config.fused_convert)
    shape.shared.add({"kFinishedOffset", "number of finished tiles", {}, kTicketBytes}, kTicketBytes);
  if (config.tile_scheduler != TileScheduler::single)
    shape.shared.add({"kTileNumberOffset", "numbers of tiles", {kTileNumbers}, kNumberBytes}, kMbarrierBytes);
  shape.barriers = barriers_of(config, shape.do_stages, shape.softmax_warpgroups);
  shape.shared.add({"kBarrierOffset", "barriers", {}, static_cast<std::size_t>(shape.barriers.bytes)}, kMbarrierBytes);

  // A softmax warpgroup has dK and dV, or one of them; S or dP, and P in 16 bits; beside the product for dK dS in 16
  // bits. Where S and dP are held together, P and dS take parts of their registers.
  shape.softmax_accumulators = (config.split_dkdv ? head_dim / 2 : head_dim) + q / 2 + q / 4;
  if (config.overlap != Overlap::none) shape.softmax_accumulators += q / 4;
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax;
  const int dq_width = dq_by_softmax ? dq_shares(problem, config).queries : dq_products(problem, config).columns;
  // Then dQ comes when dS of the block has taken dP's place, or is computed beside dP.
  if (dq_by_softmax) {
    const int scores = config.overlap == Overlap::queued ? q / 2 + q / 4 : q / 4;
    shape.softmax_accumulators = std::max(shape.softmax_accumulators, head_dim + scores + dq_width / 2);
  }
  shape.dq_accumulators = dq_by_softmax ? 0 : dq_width / 2;
  shape.product_columns = std::max({head_dim, q, dq_width});
  shape.launch_registers = register_limit(shape.threads, config.ctas_per_sm, device) / 8 * 8;
  // One softmax warpgroup with an SM to itself has all that a thread can have.
  if (shape.softmax_warpgroups > 1 || config.ctas_per_sm > 1) {
    const int fewest = dq_by_softmax ? kProducerRegisters : fewest_dq_registers(shape.dq_accumulators);
    shape.dq_registers = config.dq_registers > 0 ? config.dq_registers : fewest;
    const int pool = shape.launch_registers * (shape.softmax_warpgroups + 1) - shape.dq_registers;
    shape.softmax_registers = std::min(kMostRegistersOfThread, pool / shape.softmax_warpgroups / 8 * 8);
  }
  constexpr int kOthersWithPairs = 40;
  const int limit = shape.softmax_registers > 0 ? shape.softmax_registers : shape.launch_registers;
  shape.whole_apart = shape.softmax_accumulators + kOthersWithPairs <= limit;
  shape.slopes = slopes_place(problem, config, limit - shape.softmax_accumulators);
  return shape;
}

}  // namespace attune
