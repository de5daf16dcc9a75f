#include "generator/families/forward_sm90/cost.h"

#include <algorithm>
#include <cmath>

#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/pair_cost.h"
#include "generator/families/shared/terms.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

// Clocks of one SM for one step (a block of keys) of one CTA, in the unit rates of the device; those of an H200 stand
// here:
//
//   matrix      M = 2 q kv (D16 + D) / 4096
//   elementwise E = q kv / 15.4 beside an idle tensor core; a fully busy one takes 7.7 of the 15.4 elements a clock, so
//               that both together take (q kv + 7.7 M) / 15.4
//   l2          = 4 kv Dp / 24, by TMA; Dp counts whole panels; in a cluster, too, since a multicast passes the
//                 crossbar once for each SM; less where few SMs share what L2 gives
//
// A warpgroup alone does one after the other; with `overlap`, or with several warpgroups, a share of the shorter runs
// beside the longer one. What is marked "fitted" comes from 4300 trials of 106 shapes, whose times scatter by 5 to 6 %
// about the model's (docs/notebook/forward_sm90.md).
namespace attune {
namespace {
constexpr double kMatrixEfficiency = 0.92;  // fitted
// Fitted, of the rate of exponentials: elements a clock, and what a busy tensor core takes from them.
constexpr double kElementsShare = 0.9125, kTakenByMatrix = 0.48125;
constexpr double kInstructionsOfMask = 4.8;  // fitted, of an element
constexpr double kRescalesPerClock = 50;     // elements of O; by 34 pairs of trials
// A share of the work that warpgroups save where they pass over a block: the others go on, and they wait for them.
// Fitted on 4200 trials of 126 shapes that nobody had tuned, as is kTailOfFixed.
constexpr double kSavedByPassing = 0.5;
constexpr double kL2Share = 0.5;        // fitted, of L2's rate: what TMA gets for an SM while all of them load
constexpr double kMostShareOfL2 = 2.2;  // times that, where fewer do: by two shapes of 78 and 95 tiles
// Fitted: of TMA under load, with a share of the time that the copy takes; and how much of a stage's step hides none of
// it.
constexpr double kLoadLatency = 560, kLoadShare = 0.1, kStepUnderWay = 0.9;
// A factor of a step with one tile of pairs, so that the next one comes late: 1.1 where it is read beside the
// exponentials, by two pairs of trials, 1.23 and 1.24 by two where it is read ahead of them.
constexpr double kOnePairStage = 1.15;
constexpr double kClustered = 0.98;  // of a step in a cluster; by eight pairs of trials
// Clocks of a warpgroup's P to shared memory, with a fence and two barriers (fitted), and those of an exponential of 16
// by a polynomial, as a share of a step: by pairs of trials (docs/notebook/forward_sm90.md).
constexpr double kStoreClocks = 1470, kEmulationCost = 0.03;
constexpr double kQueryInRegisters = 0.99;  // of a step, where the product reads no Q from shared memory; by 40 pairs
// Factors of a step: products in a fixed order, by 51 pairs, and no checks of bounds, by a regression on what others
// leave.
constexpr double kOrdered = 0.97, kWithoutBounds = 0.985;
// Fitted, of a step of three consumers with wide heads: on 17 shapes of D = 136 to 192 two consumers take as long as
// predicted, or 15 % longer, and three 20 to 26 % longer.
constexpr double kThirdConsumerOfWideHeads = 1.12;
// Fitted: beyond so many keys a step is longer than its work, by this share for as many again.
constexpr double kWideBlockKv = 128, kWideCost = 0.155;
// Fitted, of a step: waits at barriers, issue, drain, with 1, 2, 3 consumers, and with two CTAs of one.
constexpr double kStepClocks[] = {530, 400, 325}, kStepClocksOfTwoCtas = 890;
// Fitted: what overlap hides of the shorter of both, by consumers; and what free-running warpgroups hide without it.
constexpr double kHiddenWithin[] = {1, 0.76, 0.94};
constexpr double kHiddenBetween[] = {0, 0.13, 0.68};
// Registers beside the accumulators with which kernels of three consumers were fit to be timed; fewer consumers need
// some more, and so does a mask with wide heads where Q is loaded ahead. There is a cliff and no slope: with as many or
// up to 15 more 1086 of 1113 kernels were, and lost nothing; with fewer 21 of 208, the others spilled hundreds of bytes
// or ptxas serialized their products. How slow those are was not measured.
constexpr int kComfortable = 16, kComfortableWithin = 28, kComfortableAcross = 36, kComfortableWithFewer = 4;
constexpr int kComfortableAhead = 16, kWideHead = 128;
constexpr int kComfortableOdd = 4;  // of head dims that are no multiple of 16: one kernel of D = 168 spilled at 28
constexpr double kSpillCost = 0.5;  // of a step
// Fitted, of a tile: loads from device memory before its first step; the same where it follows another tile of the CTA,
// with its Q loaded ahead or not, or its first step joined to the last of the tile before; its stores, by elements.
constexpr double kTileClocks = 1300, kNextTileClocks = 1130, kNextTileClocksAhead = 510, kJoinedTileClocks = 2730;
constexpr double kStoredPerClock = 6.9;
// Fitted: the tail of a launch under a mask, as a share of the longest tile.
constexpr double kTailOfFixed = 0.2, kTailOfHeads = 0, kTailOfRows = 0.3, kTailOfShortestFirst = 0.7;
// By pairs of trials. Short sequences have so many tiles that their lengths even out when those of one head follow each
// other (50 pairs: 7 to 11 % over sections); of long ones it is luck (40 pairs, -10 to +56 % over one tile a CTA; 11
// pairs, 6 % less than on demand).
constexpr double kTailOfFixedSections = 0.9, kTailOfFixedLong = 0.4;
constexpr std::int64_t kMostQueriesOfEvenTiles = 1024;
constexpr double kL2Megabytes = 30;    // fitted: of K and V, that stay in L2 from one round of heads to the next
constexpr double kMemoryRate = 0.958;  // fitted: of the specified one
constexpr double kMemoryShare = 0.22;  // fitted: of the shorter of computing and device memory, what is not hidden
constexpr double kLaunchMicroseconds = 4.4;    // fitted
constexpr double kCounterMicroseconds = 2.15;  // fitted: to zero the counter of tiles before the launch

double hidden_share(const KernelConfig& config, int consumers) {
  if (config.overlap != Overlap::none) return kHiddenWithin[std::min(consumers, 3) - 1];
  return kHiddenBetween[std::min(consumers * config.ctas_per_sm, 3) - 1];
}

int comfortable_registers(Overlap overlap) {
  switch (overlap) {
    case Overlap::none:
      return kComfortable;
    case Overlap::within:
      return kComfortableWithin;
    case Overlap::across:
      return kComfortableAcross;
    case Overlap::queued:  // backward's alone
      break;
  }
  return kComfortable;
}

double tail_share(const AttentionProblem& problem, const KernelConfig& config) {
  const bool by_rows =
      config.tile_order == TileOrder::head_major_reversed || config.tile_order == TileOrder::head_major;
  if (config.tile_scheduler == TileScheduler::static_persistent) {
    if (problem.seq_q > kMostQueriesOfEvenTiles) return kTailOfFixedLong;
    return by_rows ? kTailOfFixed : kTailOfFixedSections;
  }
  if (config.tile_order == TileOrder::head_major || config.tile_order == TileOrder::tile_major)
    return kTailOfShortestFirst;
  return by_rows ? kTailOfRows : kTailOfHeads;
}

// The bytes of K and V.
double key_bytes(const AttentionProblem& problem) {
  return size_of(problem.dtype) * static_cast<double>(problem.batch * problem.heads_kv * problem.seq_kv) *
         (problem.head_dim_qk() + problem.head_dim_v());
}

// How often K and V come from device memory. Tiles of one head follow each other while its keys are in L2; where all
// heads alternate, the keys of the first are gone when its next tile comes.
double key_passes(const AttentionProblem& problem, const KernelConfig& config, double tiles_of_head, double slots,
                  double keys_of_tile) {
  const bool by_heads =
      config.tile_order == TileOrder::tile_major || config.tile_order == TileOrder::tile_major_reversed;
  if (!by_heads || key_bytes(problem) <= kL2Megabytes * 1e6) return 1;
  const double together =
      std::max(1.0, slots / static_cast<double>(problem.batch * problem.heads_q));  // tiles of a head
  const double share =
      lengthens_tiles(problem.mask) ? (1 + 1 / tiles_of_head) / 2 : keys_of_tile / static_cast<double>(problem.seq_kv);
  return std::max(1.0, tiles_of_head / together * share);
}
}  // namespace

CostEstimate forward_sm90_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim_v();
  const double padded = round_up(problem.head_dim_qk(), 16);
  const double elements = q * kv;
  // The CTAs of a cluster walk the blocks of their last tile, and each masks its own.
  const std::int64_t tile_queries = config.block_q / shape.group, cluster_queries = tile_queries * config.cluster;
  const MaskGeometry mask(problem);
  const KeySplit split = forward_sm90_split(shape, config, device);
  const double parts = split.parts_of(problem);
  const StepCount steps = mask.key_steps(cluster_queries, config.block_kv);  // of all parts of a tile
  const double masked_share = steps.mean > 0 ? mask.key_steps(tile_queries, config.block_kv).masked / steps.mean : 0;

  const double matrix_peak = 2 * elements * (padded + d) / device.wgmma_flops_per_clock;
  const double matrix = matrix_peak / kMatrixEfficiency;
  const double per_clock = device.exp2_per_clock * (kElementsShare);
  double elementwise = elements / per_clock + masked_share * elements * kInstructionsOfMask / device.alu_per_clock;
  if (problem.softcap != 0) elementwise += elements / device.exp2_per_clock;  // its tanh, by the unit of exponentials
  elementwise += elements * alu_of_dropout(problem) / device.alu_per_clock;
  if (problem.alibi) elementwise += elements * kAluOfSharedAlibi / device.alu_per_clock;
  const PairCost pair_cost = cost_of_pairs(problem, config, device, elements);
  elementwise += pair_cost.clocks;
  const double rescaled = 1 - parts / std::max(parts, steps.mean);  // of the steps: each part's first one has no O
  if (config.rescale_threshold == 0) elementwise += rescaled * q * d / kRescalesPerClock;
  const double together = std::max(matrix, elementwise + kTakenByMatrix * device.exp2_per_clock / per_clock * matrix);
  const double hidden = hidden_share(config, shape.consumers);
  const double busy = hidden * together + (1 - hidden) * (matrix + elementwise);
  const double tiles = static_cast<double>(ceil_div(problem.seq_q, cluster_queries) * config.cluster);
  const double all = tiles * static_cast<double>(problem.batch * problem.heads_q / shape.group) * parts;
  const double sharing = std::max(device.sm_count / kMostShareOfL2, std::min<double>(device.sm_count, all));
  const double l2 = (4.0 * config.block_kv * shape.panels * shape.panel_columns + pair_cost.l2_bytes) /
                    (kL2Share * device.l2_bytes_per_clock * device.sm_count / sharing);
  const double waits = config.ctas_per_sm > 1 ? kStepClocksOfTwoCtas : kStepClocks[shape.consumers - 1];
  const double stores = config.p_in_shared ? kStoreClocks / shape.consumers : 0;
  // Warpgroups pass over blocks that none of their rows attends to.
  const std::int64_t warpgroup_queries = std::max(1, 64 / shape.group);
  const double attended = steps.mean > 0 ? mask.key_steps(warpgroup_queries, config.block_kv).mean / steps.mean : 1;
  const double worked = 1 - kSavedByPassing * (1 - attended);
  double step = std::max(busy * worked + waits + stores, l2);
  if (config.cluster > 1) step *= kClustered;
  if (config.pair_stages == 1) step *= kOnePairStage;
  // A stage is filled while the others are worked on; a ring of one stage makes the other wait as well.
  const int fewer_stages = std::min(config.stages, shape.v_stages);
  const double stages = fewer_stages == 1 ? 1 : (config.stages + shape.v_stages) / 2.0;
  step += std::max(0.0, kLoadLatency + kLoadShare * l2 - (stages - kStepUnderWay) * step * config.ctas_per_sm);
  const int limit = shape.consumer_registers > 0 ? shape.consumer_registers : shape.launch_registers;
  int comfortable = comfortable_registers(config.overlap) + (shape.consumers < 3 ? kComfortableWithFewer : 0);
  if (hides_pairs(problem.mask) && config.q_stages > 1 && problem.head_dim > kWideHead)
    comfortable += kComfortableAhead;
  if (problem.head_dim % 16 != 0) comfortable += kComfortableOdd;
  if (limit - shape.accumulator_registers < comfortable) step *= 1 + kSpillCost;
  if (config.q_in_registers) step *= kQueryInRegisters;
  if (config.warpgroup_order == WarpgroupOrder::ordered) step *= kOrdered;
  if (config.even_tiles) step *= kWithoutBounds;
  if (shape.consumers == 3 && problem.head_dim > kWideHead) step *= kThirdConsumerOfWideHeads;
  step *= 1 + kWideCost * std::max(0.0, kv / kWideBlockKv - 1);
  step *= 1 + kEmulationCost * config.emulated_exponentials;

  CostEstimate cost;
  cost.registers = shape.launch_registers;
  cost.ctas_per_sm = config.ctas_per_sm;
  const double slots = static_cast<double>(device.sm_count) * config.ctas_per_sm;
  cost.waves = all / slots;

  const bool persistent = config.tile_scheduler != TileScheduler::single;
  const double begins = config.overlap == Overlap::across ? kJoinedTileClocks
                        : persistent ? (config.q_stages > 1 ? kNextTileClocksAhead : kNextTileClocks)
                                     : kTileClocks / config.ctas_per_sm;
  const double ends = begins + q * d / kStoredPerClock / shape.consumers;
  const double walked = expected_share_of_blocks(config);
  const double mean = walked * steps.mean / parts * step + ends,
               longest = walked * std::ceil(steps.longest / parts) * step + ends;
  double clocks = kTileClocks;
  if (!lengthens_tiles(problem.mask)) {
    clocks += std::ceil(cost.waves) * config.ctas_per_sm * mean;
  } else {
    const double tail = cost.waves > 1 ? tail_share(problem, config) : 0;  // tiles of one wave begin together
    clocks += std::max(cost.waves * config.ctas_per_sm * mean, longest) + tail * longest;
  }

  const double per_sm = all * steps.mean / parts / device.sm_count / device.clock_mhz;
  cost.matrix_microseconds = matrix_peak * per_sm;
  cost.exponential_microseconds = elementwise * per_sm;
  cost.shared_microseconds = 0;  // wgmma reads its operands beside everything else
  const double keys_of_tile = std::min(steps.mean * kv, static_cast<double>(problem.seq_kv));
  const double bytes =
      count_bytes(problem) + (key_passes(problem, config, tiles, slots, keys_of_tile) - 1) * key_bytes(problem);
  const double device_memory = bytes / (kMemoryRate * device.memory_gbps * 1e3);
  cost.memory_microseconds = std::max(l2 * per_sm, device_memory);
  const double computing = clocks / device.clock_mhz;
  cost.microseconds =
      std::max(computing, device_memory) + kMemoryShare * std::min(computing, device_memory) + kLaunchMicroseconds;
  if (config.tile_scheduler == TileScheduler::dynamic_persistent) cost.microseconds += kCounterMicroseconds;
  cost.microseconds += combine_microseconds(problem, split, device);
  cost.microseconds +=
      visible_blocks_microseconds(problem, config, device) + copied_pairs_microseconds(problem, config, device);
  return cost;
}

}  // namespace attune
