#include "generator/cost_model_sm90.h"

#include <algorithm>
#include <cmath>

#include "generator/forward_sm90_shape.h"
#include "generator/step_count.h"

// Clocks of one SM for one step (a block of keys) of one CTA, by the unit rates of an H200 (templates/NOTES.md):
//
//   matrix      M = 2 q kv (D16 + D) / 4096
//   elementwise E = q kv / 15 beside an idle tensor core; a fully busy one takes 6 of the 15 elements a clock, so that
//               both together take (q kv + 6 M) / 15
//   l2          = 4 kv Dp / 27, by TMA; Dp counts whole panels; in a cluster each CTA's share of it
//
// A warpgroup alone does one after the other; with `overlap`, or with several warpgroups, part of the shorter runs
// beside the longer one.
namespace attune {
namespace {
constexpr double kMatrixFlopsPerClock = 4096;
constexpr double kElementsPerClock = 15, kElementsTakenByMatrix = 6;
constexpr double kElementsPerClockWithoutMaximum = 18;
constexpr double kLoadLatency = 950;       // of TMA from L2, under load
constexpr int kComfortableRegisters = 30;  // beside the accumulators: with fewer the kernel spills
constexpr double kSpillCost = 0.2;         // guess: of a step
constexpr double kL2BytesPerClock = 27;
constexpr double kAluPerClock = 126;
constexpr double kMaskPerElement = 7;     // instructions; as measured of the sm80 family
constexpr double kRowClocks = 0.4;        // of a row's maximum: shuffles, comparisons
constexpr double kStepClocks = 120;       // waits at barriers, issue, drain: what neither unit works in
constexpr double kMeetingClocks = 100;    // guess: of a step whose CTAs wait for each other
constexpr double kTileClocks = 2500;      // of a CTA: first loads from device memory, last stores
constexpr double kNextTileClocks = 1200;  // of a persistent CTA's next tile
constexpr double kJoinedTileClocks =
    300;                                // guess: where its first block runs beside the last product of the one before
constexpr double kHiddenWithin = 0.92;  // guess: of the shorter of both, what overlap hides with several warpgroups
constexpr double kHiddenBetween = 0.6;  // guess: what free-running warpgroups hide of each other

double hidden_share(const KernelConfig& config, int consumers) {
  if (config.overlap != Overlap::none) return consumers > 1 ? kHiddenWithin : kHiddenBetween;
  return consumers > 1 || config.ctas_per_sm > 1 ? kHiddenBetween : 0;
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

  const double matrix = 2 * elements * (padded + d) / kMatrixFlopsPerClock;
  const double per_clock = config.without_maximum ? kElementsPerClockWithoutMaximum : kElementsPerClock;
  double elementwise = elements / per_clock + q * kRowClocks + masked_share * elements * kMaskPerElement / kAluPerClock;
  if (config.rescale_threshold == 0 && !config.without_maximum) elementwise += q * d / kAluPerClock;
  const double together = std::max(matrix, elementwise + kElementsTakenByMatrix / per_clock * matrix);
  const double apart = matrix + elementwise;
  const double hidden = hidden_share(config, shape.consumers);
  const double busy = hidden * together + (1 - hidden) * apart;
  const double l2 = 4.0 * shape.kv_box_rows * shape.panels * shape.panel_columns / kL2BytesPerClock;
  const double exposed = kStepClocks / (shape.consumers * config.ctas_per_sm);
  double step = std::max(busy + exposed, l2);
  if (config.cluster > 1) step += kMeetingClocks;
  // A stage is filled while the others are worked on.
  const double stages = (config.stages + shape.v_stages) / 2.0;
  step += std::max(0.0, kLoadLatency - (stages - 0.5) * step * config.ctas_per_sm);
  const int limit = shape.consumer_registers > 0 ? shape.consumer_registers : shape.launch_registers;
  if (shape.accumulator_registers > limit - kComfortableRegisters) step *= 1 + kSpillCost;

  CostEstimate cost;
  cost.registers = shape.launch_registers;
  cost.ctas_per_sm = config.ctas_per_sm;
  const double tiles = static_cast<double>((problem.seq_q + cluster.block_q - 1) / cluster.block_q * config.cluster);
  const double all = tiles * static_cast<double>(problem.batch * problem.heads_q / shape.group);
  const double slots = static_cast<double>(device.sm_count) * config.ctas_per_sm;
  cost.waves = all / slots;

  const bool persistent = config.persistence != Persistence::none;
  const double ends = config.overlap == Overlap::across ? kJoinedTileClocks
                      : persistent                      ? kNextTileClocks / config.q_stages
                                                        : kTileClocks / config.ctas_per_sm;
  const double mean = steps.mean * step + ends, longest = steps.longest * step + ends;
  double clocks = 0;
  if (problem.mask == MaskKind::none || config.persistence == Persistence::fixed) {
    clocks = std::ceil(cost.waves) * config.ctas_per_sm * mean;
  } else {
    clocks = std::max(cost.waves * config.ctas_per_sm * mean, longest);
    const bool longest_first =
        config.tile_order == TileOrder::heads_reversed || config.tile_order == TileOrder::rows_reversed;
    clocks += (config.tile_order == TileOrder::heads_reversed ? 0.25 : longest_first ? 0.9 : 1.2) * longest;
  }
  clocks += kTileClocks;

  const double per_sm = all * steps.mean / device.sm_count / device.clock_mhz;
  cost.matrix_microseconds = matrix * per_sm;
  cost.exponential_microseconds = elementwise * per_sm;
  cost.shared_microseconds = 0;  // wgmma reads its operands beside everything else
  const double device_memory = count_bytes(problem) / (device.memory_gbps * 1e3);
  cost.memory_microseconds = std::max(l2 * per_sm, device_memory);
  cost.microseconds = std::max(clocks / device.clock_mhz, device_memory);
  return cost;
}

}  // namespace attune
