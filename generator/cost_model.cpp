#include "generator/cost_model.h"

#include <algorithm>
#include <cmath>

#include "generator/forward_sm80_shape.h"
#include "generator/register_limit.h"

// Clocks of one SM for one step (a block of keys) of one CTA: counted work over the rates of the units.
// D16 is D rounded up to 16 (what Q K^T pays for a tail of 8), w the warps that share the SM.
//
//   matrix      = 2 q kv (D16 + D) / mma rate
//   exponential = q kv / e(w) + 0.4 q + rescale: q D / 126 + masked steps: 2 q kv / 126
//   shared      = (warps * 4 kv D + 4 kv D + Q from shared memory: 2 q D) / 128
//                 since each warp reads all of K and V, which are written once
//   l2          = 4 kv D / 27
//
//   m    = max(matrix, shared) + 0.3 min(matrix, shared)
//   t    = max(m, exponential) + (1 - overlap(w)) min(m, exponential) + exposed latency + barriers
//   step = max(t, l2) + 0.2 min(t, l2)
//
// Steps of a CTA are counted to its last attended key. The kernel takes the sum of all CTAs' work over the SMs, plus
// what its last wave leaves idle, and never less than device memory needs.
//
// The rates were measured on an H200; per clock and SM they differ little between architectures.
namespace attune {
namespace {
constexpr double kAluPerClock = 126;  // FFMA, FADD, FMUL
constexpr double kSharedBytesPerClock = 128;
constexpr double kL2BytesPerClock = 27;           // of an SM while all SMs read
constexpr double kElementwiseLoadsPerClock = 32;  // 16-bit loads where rows are not aligned
constexpr double kL2Latency = 900;
constexpr double kBarrierClocks = 60;
constexpr double kRowClocks = 0.4;          // of a row's maximum at each step: shuffles among four lanes, comparisons
constexpr double kPrologueClocks = 2500;    // first loads from device memory, last stores; other CTAs hide it
constexpr double kSpillCost = 0.02;         // of a step, for each register that does not fit
constexpr double kBoundsCheckCost = 0.015;  // of a step, unless lengths are multiples of the tiles
constexpr int kSampledTiles = 64;

// Elementwise work per clock (one FFMA, one max, one ex2, one FADD and half a conversion per element): 12.6 with 4
// warps on an SM, 15.3 with 8, 15.6 with 16, where the exponentials alone allow 16.
double elements_per_clock(double warps, double exp2_per_clock) {
  const double share = warps < 4 ? 0.79 * warps / 4 : warps < 8 ? 0.79 + 0.17 * (warps - 4) / 4 : 0.96;
  return exp2_per_clock * share;
}

// How much of the shorter of two kinds of work is done beside the longer one: a warp does one after the other, so that
// it takes several on each of the four schedulers.
double overlap(double warps) {
  const double per_scheduler = warps / 4;
  return std::clamp(0.15 + 0.45 * (per_scheduler - 1), 0.05, 0.85);
}

// Steps over all tiles of a head, sampled where there are many.
struct Steps {
  double mean = 0, longest = 0, shortest = 0;
  double masked = 0;  // of the mean: those that need a predicate
};

Steps count_steps(const AttentionProblem& problem, const KernelConfig& config) {
  const std::int64_t tiles = (problem.seq_q + config.block_q - 1) / config.block_q;
  const std::int64_t samples = std::min<std::int64_t>(tiles, kSampledTiles);
  const auto keys_until = [&](std::int64_t row) {
    if (problem.mask == MaskKind::none) return problem.seq_kv;
    return std::clamp<std::int64_t>(row + problem.mask_offset + 1, 0, problem.seq_kv);
  };
  Steps steps;
  steps.shortest = static_cast<double>(problem.seq_kv);
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t tile = samples == 1 ? 0 : i * (tiles - 1) / (samples - 1);
    const std::int64_t first = tile * config.block_q;
    const std::int64_t last = std::min(first + config.block_q, problem.seq_q) - 1;
    const auto all = static_cast<double>((keys_until(last) + config.block_kv - 1) / config.block_kv);
    const auto unmasked = static_cast<double>(keys_until(first) / config.block_kv);
    steps.mean += all / static_cast<double>(samples);
    steps.masked += (all - unmasked) / static_cast<double>(samples);
    steps.longest = std::max(steps.longest, all);
    steps.shortest = std::min(steps.shortest, all);
  }
  return steps;
}

struct StepClocks {
  double matrix = 0, exponential = 0, shared = 0, l2 = 0;
  double total = 0;  // of one CTA's step, while `ctas` share the SM: each of them takes ctas * total
};

StepClocks step_clocks(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       double masked_share, double ctas, int spilled) {
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim;
  const double padded = (problem.head_dim + 15) / 16 * 16;
  const double warps = config.warps * ctas;
  const double kv_bytes = 4 * kv * d;

  StepClocks clocks;
  clocks.matrix = 2 * q * kv * (padded + d) / device.mma_flops_per_clock;
  clocks.exponential =
      q * kv / elements_per_clock(warps, device.exp2_per_clock) + masked_share * 2 * q * kv / kAluPerClock;
  clocks.exponential += q * kRowClocks;
  if (config.rescale_threshold == 0) clocks.exponential += q * d / kAluPerClock;
  const double q_bytes = config.q_in_registers ? 0 : 2 * q * d;
  clocks.shared = (config.warps * kv_bytes + q_bytes + kv_bytes) / kSharedBytesPerClock;
  clocks.l2 = kv_bytes / kL2BytesPerClock;
  if (problem.alignment < 16) clocks.l2 += kv_bytes / 2 / kElementwiseLoadsPerClock;

  const double matrix = std::max(clocks.matrix, clocks.shared) + 0.3 * std::min(clocks.matrix, clocks.shared);
  const double longer = std::max(matrix, clocks.exponential), shorter = std::min(matrix, clocks.exponential);
  double work = longer + (1 - overlap(warps)) * shorter;
  work *= 1 + kSpillCost * spilled + (config.whole_tiles ? 0 : kBoundsCheckCost);
  // Loads are issued stages - 1 steps ahead (with one stage: part of a step); what they take longer is hidden only by
  // other CTAs.
  const double ahead = config.stages == 1 ? 0.5 : config.stages - 1;
  const double exposed = std::max(0.0, kL2Latency - ahead * work * ctas) / ctas;
  const double barriers = (config.stages == 1 ? 2 : 1) * kBarrierClocks / ctas;
  const double busy = work + exposed + barriers;
  clocks.total = std::max(busy, clocks.l2) + 0.2 * std::min(busy, clocks.l2);
  return clocks;
}

// K and V leave L2 between two tiles of a head if the heads that are at work together do not fit.
double device_memory_bytes(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                           double tiles, double slots) {
  const double least = count_bytes(problem);
  const bool by_heads = config.tile_order == TileOrder::heads || config.tile_order == TileOrder::heads_reversed;
  const double heads = static_cast<double>(problem.batch * problem.heads_q);
  const double kv_bytes = 4.0 * static_cast<double>(problem.batch * problem.heads_kv) *
                          static_cast<double>(problem.seq_kv) * problem.head_dim;
  if (!by_heads || kv_bytes <= 0.8 * static_cast<double>(device.l2_bytes)) return least;
  const double passes = std::max(1.0, tiles * heads / std::max(heads, slots));
  return least + kv_bytes * (passes - 1) * (problem.mask == MaskKind::causal ? 0.5 : 1.0);
}

// What the end of the kernel leaves idle, as a share of the longest CTA's time.
double tail_share(const AttentionProblem& problem, TileOrder order) {
  // Without a mask all tiles take equally long; by heads, a CTA's neighbours share less in the caches near it.
  if (problem.mask == MaskKind::none) return order == TileOrder::rows || order == TileOrder::rows_reversed ? 0.1 : 0.11;
  switch (order) {
    case TileOrder::rows:
      return 1.2;
    case TileOrder::rows_reversed:
      return 1.0;
    case TileOrder::heads:
      return 1.5;
    case TileOrder::heads_reversed:
      return 0.05;
  }
  return 0;
}
}  // namespace

CostEstimate estimate_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  CostEstimate cost;
  const int limit = register_limit(shape.threads, config.ctas_per_sm, device);
  cost.registers = std::min(limit, (shape.registers_estimate + 7) / 8 * 8);
  const int spilled = std::max(0, shape.registers_estimate - limit);
  const auto shared = static_cast<int>(shape.shared_bytes) + device.shared_bytes_reserved;
  cost.ctas_per_sm = std::max(
      1, std::min({device.registers_per_sm / (cost.registers * shape.threads), device.shared_bytes_per_sm / shared,
                   device.threads_per_sm / shape.threads, device.ctas_per_sm}));

  const double tiles = static_cast<double>((problem.seq_q + config.block_q - 1) / config.block_q);
  const double ctas = tiles * static_cast<double>(problem.batch * problem.heads_q);
  const double slots = static_cast<double>(device.sm_count) * cost.ctas_per_sm;
  cost.waves = ctas / slots;

  const Steps steps = count_steps(problem, config);
  const double masked_share = steps.mean > 0 ? steps.masked / steps.mean : 0;
  // Clocks that an SM spends per CTA while `together` of them share it.
  const auto clocks_of = [&](double together, double count) {
    return count * step_clocks(problem, config, device, masked_share, together, spilled).total +
           kPrologueClocks / together;
  };

  const double full_waves = std::floor(cost.waves);
  const double rest = std::ceil((ctas - full_waves * slots) / device.sm_count);
  const double resident = full_waves > 0 ? cost.ctas_per_sm : rest;
  double clocks = 0;
  if (problem.mask == MaskKind::none) {
    clocks = full_waves * resident * clocks_of(resident, steps.mean);
    if (rest > 0) clocks += rest * clocks_of(rest, steps.mean);
  } else {
    // CTAs of different length fill the SMs evenly but for the last of them.
    clocks = ctas / device.sm_count * clocks_of(resident, steps.mean);
    clocks = std::max(clocks, resident * clocks_of(resident, steps.longest));
  }
  clocks += tail_share(problem, config.tile_order) * clocks_of(1, steps.longest) / std::max(1.0, resident);

  const double clocks_per_microsecond = device.clock_mhz;
  const double per_sm = ctas * steps.mean / device.sm_count / clocks_per_microsecond;
  const StepClocks step = step_clocks(problem, config, device, masked_share, resident, spilled);
  cost.matrix_microseconds = step.matrix * per_sm;
  cost.exponential_microseconds = step.exponential * per_sm;
  cost.shared_microseconds = step.shared * per_sm;
  const double device_memory = device_memory_bytes(problem, config, device, tiles, slots) / (device.memory_gbps * 1e3);
  cost.memory_microseconds = std::max(step.l2 * per_sm, device_memory);
  cost.microseconds = std::max(clocks / clocks_per_microsecond, device_memory) + 0.1 * device_memory;
  return cost;
}

}  // namespace attune
