#include "generator/cost_model_sm90.h"

#include <algorithm>
#include <cmath>

#include "generator/forward_sm90_shape.h"
#include "generator/step_count.h"

// Clocks of one SM for one step (a block of keys) of one CTA, by the unit rates of an H200:
//
//   matrix      M = 2 q kv (D16 + D) / 4096
//   elementwise E = q kv / 15.4 beside an idle tensor core; a fully busy one takes 7.7 of the 15.4 elements a clock, so
//               that both together take (q kv + 7.7 M) / 15.4
//   l2          = 4 kv Dp / 24, by TMA; Dp counts whole panels; in a cluster each CTA's share of it
//
// A warpgroup alone does one after the other; with `overlap`, or with several warpgroups, a share of the shorter runs
// beside the longer one. What is marked "fitted" comes from 3660 trials of 106 shapes, whose times scatter by 7
// % about the model's (templates/NOTES.md).
namespace attune {
namespace {
constexpr double kMatrixFlopsPerClock = 4096, kMatrixEfficiency = 0.92;             // the latter fitted
constexpr double kElementsPerClock = 14.6, kElementsPerClockWithoutMaximum = 15.4;  // fitted
constexpr double kElementsTakenByMatrix = 7.7;                                      // fitted, a clock
constexpr double kMaskedPerClock = 126 / 5.7;                                       // fitted: elements
constexpr double kRescalesPerClock = 140;                                           // fitted: elements of O
constexpr double kL2BytesPerClock = 24;                                             // fitted
// Fitted: of TMA under load, with a share of the time that the copy takes; and how much of a stage's step hides none of
// it.
constexpr double kLoadLatency = 730, kLoadShare = 0.1, kStepUnderWay = 0.84;
constexpr double kClusterStepClocks = 3600;  // of a cluster a step takes no less, whatever it computes
// Of a warpgroup's P to shared memory, with a fence and two barriers, and of an exponential of 16 by a polynomial, as a
// share of a step: by pairs of trials (templates/NOTES.md).
constexpr double kStoreClocks = 900, kEmulationCost = 0.03;
constexpr double kQueryInRegisters = 0.965;  // fitted: of a step, where the product reads no Q from shared memory
// Fitted, of a step: waits at barriers, issue, drain, with 1, 2, 3 consumers, and with two CTAs of one.
constexpr double kStepClocks[] = {630, 280, 210}, kStepClocksOfTwoCtas = 740;
// Fitted: what overlap hides of the shorter of both, by consumers; and what free-running warpgroups hide without it.
constexpr double kHiddenWithin[] = {1, 0.67, 0.98};
constexpr double kHiddenBetween[] = {0, 0.19, 0.82};
// Registers beside the accumulators with which nothing spills, as 1500 kernels show; and what those that lack cost, by
// their square, as a share of a step: a few spill outside of the loops, with 20 wgmma is serialized.
constexpr int kComfortable = 16, kComfortableWithin = 36, kComfortableAcross = 40, kComfortableMask = 8;
constexpr double kSpillCost = 0.0012;
// Fitted, of a tile: loads from device memory before its first step; the same where it follows another tile of the CTA,
// with its Q loaded ahead or not, or its first step joined to the last of the tile before; its stores, by elements.
constexpr double kTileClocks = 145, kNextTileClocks = 450, kNextTileClocksAhead = 180, kJoinedTileClocks = 1900;
constexpr double kStoredPerClock = 126 / 30.0;
// Fitted: the tail of a launch under a mask, as a share of the longest tile.
constexpr double kTailOfFixed = 0, kTailOfHeads = 0, kTailOfRows = 0.21, kTailOfShortestFirst = 1.2;
// By seven pairs of long sequences: 0.6 to 3 tiles, once none. Short ones have so many tiles that their lengths even
// out.
constexpr double kTailOfFixedLong = 1.2;
constexpr std::int64_t kMostQueriesOfEvenTiles = 1024;
constexpr double kL2Megabytes = 30;    // fitted: of K and V, that stay in L2 from one round of heads to the next
constexpr double kMemoryRate = 0.958;  // fitted: of the specified one
constexpr double kMemoryShare = 0.22;  // fitted: of the shorter of computing and device memory, what is not hidden
constexpr double kLaunchMicroseconds = 4.9;   // fitted
constexpr double kCounterMicroseconds = 2.3;  // fitted: to zero the counter of tiles before the launch

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
  }
  return kComfortable;
}

double tail_share(const AttentionProblem& problem, const KernelConfig& config) {
  if (config.persistence == Persistence::fixed)
    return problem.seq_q <= kMostQueriesOfEvenTiles ? kTailOfFixed : kTailOfFixedLong;
  if (config.tile_order == TileOrder::heads_reversed || config.tile_order == TileOrder::sections_reversed)
    return kTailOfHeads;
  return config.tile_order == TileOrder::rows_reversed ? kTailOfRows : kTailOfShortestFirst;
}

// Of K and V.
double key_bytes(const AttentionProblem& problem) {
  return 2.0 * size_of(problem.dtype) * static_cast<double>(problem.batch * problem.heads_kv * problem.seq_kv) *
         problem.head_dim;
}

// How often K and V come from device memory. Tiles of one head follow each other while its keys are in L2; where all
// heads take turns, the keys of the first are gone when its next tile comes.
double key_passes(const AttentionProblem& problem, const KernelConfig& config, double tiles_of_head, double slots) {
  const bool by_heads = config.tile_order == TileOrder::heads || config.tile_order == TileOrder::heads_reversed;
  if (!by_heads || key_bytes(problem) <= kL2Megabytes * 1e6) return 1;
  const double together =
      std::max(1.0, slots / static_cast<double>(problem.batch * problem.heads_q));  // tiles of a head
  const double share = problem.mask == MaskKind::causal ? (1 + 1 / tiles_of_head) / 2 : 1;
  return std::max(1.0, tiles_of_head / together * share);
}
}  // namespace

CostEstimate estimate_cost_sm90(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim;
  const double padded = (problem.head_dim + 15) / 16 * 16;
  const double elements = q * kv;
  // The CTAs of a cluster walk the blocks of their last tile, and each masks its own.
  KernelConfig tile = config, cluster = config;
  tile.block_q = config.block_q / shape.group;
  cluster.block_q = tile.block_q * config.cluster;
  const StepCount steps = count_steps(problem, cluster);
  const double masked_share = steps.mean > 0 ? count_steps(problem, tile).masked / steps.mean : 0;

  const double matrix_peak = 2 * elements * (padded + d) / kMatrixFlopsPerClock;
  const double matrix = matrix_peak / kMatrixEfficiency;
  const double per_clock = config.without_maximum ? kElementsPerClockWithoutMaximum : kElementsPerClock;
  double elementwise = elements / per_clock + masked_share * elements / kMaskedPerClock;
  if (config.rescale_threshold == 0 && !config.without_maximum) elementwise += q * d / kRescalesPerClock;
  const double together = std::max(matrix, elementwise + kElementsTakenByMatrix / per_clock * matrix);
  const double hidden = hidden_share(config, shape.consumers);
  const double busy = hidden * together + (1 - hidden) * (matrix + elementwise);
  const double l2 = 4.0 * shape.kv_box_rows * shape.panels * shape.panel_columns / kL2BytesPerClock;
  const double waits = config.ctas_per_sm > 1 ? kStepClocksOfTwoCtas : kStepClocks[shape.consumers - 1];
  const double stores = config.p_in_shared ? kStoreClocks / shape.consumers : 0;
  double step = std::max(busy + waits + stores, l2);
  if (config.cluster > 1) step = std::max(step, kClusterStepClocks);
  // A stage is filled while the others are worked on.
  const double stages = (config.stages + shape.v_stages) / 2.0;
  step += std::max(0.0, kLoadLatency + kLoadShare * l2 - (stages - kStepUnderWay) * step * config.ctas_per_sm);
  const int limit = shape.consumer_registers > 0 ? shape.consumer_registers : shape.launch_registers;
  const int comfortable =
      comfortable_registers(config.overlap) + (problem.mask == MaskKind::causal ? kComfortableMask : 0);
  const int lacking = comfortable - (limit - shape.accumulator_registers);
  if (lacking > 0) step *= 1 + kSpillCost * lacking * lacking;
  if (config.q_in_registers) step *= kQueryInRegisters;
  step *= 1 + kEmulationCost * config.emulated_exponentials;

  CostEstimate cost;
  cost.registers = shape.launch_registers;
  cost.ctas_per_sm = config.ctas_per_sm;
  const double tiles = static_cast<double>((problem.seq_q + cluster.block_q - 1) / cluster.block_q * config.cluster);
  const double all = tiles * static_cast<double>(problem.batch * problem.heads_q / shape.group);
  const double slots = static_cast<double>(device.sm_count) * config.ctas_per_sm;
  cost.waves = all / slots;

  const bool persistent = config.persistence != Persistence::none;
  const double begins = config.overlap == Overlap::across ? kJoinedTileClocks
                        : persistent ? (config.q_stages > 1 ? kNextTileClocksAhead : kNextTileClocks)
                                     : kTileClocks / config.ctas_per_sm;
  const double ends = begins + q * d / kStoredPerClock / shape.consumers;
  const double mean = steps.mean * step + ends, longest = steps.longest * step + ends;
  double clocks = kTileClocks;
  if (problem.mask == MaskKind::none) {
    clocks += std::ceil(cost.waves) * config.ctas_per_sm * mean;
  } else {
    clocks += std::max(cost.waves * config.ctas_per_sm * mean, longest) + tail_share(problem, config) * longest;
  }

  const double per_sm = all * steps.mean / device.sm_count / device.clock_mhz;
  cost.matrix_microseconds = matrix_peak * per_sm;
  cost.exponential_microseconds = elementwise * per_sm;
  cost.shared_microseconds = 0;  // wgmma reads its operands beside everything else
  const double bytes = count_bytes(problem) + (key_passes(problem, config, tiles, slots) - 1) * key_bytes(problem);
  const double device_memory = bytes / (kMemoryRate * device.memory_gbps * 1e3);
  cost.memory_microseconds = std::max(l2 * per_sm, device_memory);
  const double computing = clocks / device.clock_mhz;
  cost.microseconds =
      std::max(computing, device_memory) + kMemoryShare * std::min(computing, device_memory) + kLaunchMicroseconds;
  if (config.persistence == Persistence::on_demand) cost.microseconds += kCounterMicroseconds;
  return cost;
}

}  // namespace attune
