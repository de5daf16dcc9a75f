#include "generator/cost_model_backward.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/backward_sm80_plan.h"
#include "generator/closed_network.h"
#include "generator/register_limit.h"

// As forward's model (cost_model.cpp): clocks of an SM for one step of a CTA, counted work over the rates of the units.
// A kernel keeps one tile resident and streams pairs of tiles past it: the kernel of key tiles blocks of queries past
// its keys, that of dQ blocks of keys past its queries. With q and kv of the config, w warps of which s share the same
// keys (w / s = n), D16 the head dim rounded up to 16, and a = 1 where the kernel of key tiles adds to dQ, else 0:
//
//   key tiles:  matrix      = 2 q kv (2 D16 + (2 + a) D) / mma rate
//               shared      = (4 D (2 n q + s kv) + scores + dQ's operands + copies 4 q D) / 128
//                             scores that go through shared memory: 2 q kv each when written, s times that when read
//                             dQ: 2 w kv (rows of a warp + columns of a warp)
//               l2          = 4 q D / 48 + a 4 q D / add rate
//   dQ:         matrix      = 2 q kv (2 D16 + D) / mma rate
//               shared      = (6 D kv q / 16 + 4 q D + copies 4 kv D) / 128
//               l2          = 4 kv D / 48
//               and of a tile, where heads are apart: 8 kv D / add rate
//   both:       exponential = q kv (1 / 16 + 6 / 126) + masked steps: 7 q kv / 126
//
// Delta, the zeros of sums and their conversion take device memory's time. Where heads are apart, the kernel of key
// tiles has a tile for each query head; in turns, those of a group that end together add one after the other. Nothing
// here is fitted yet; what forward's model has from measurements of its kernels is taken over.
namespace attune {
namespace {
constexpr double kAluPerClock = 126, kSharedBytesPerClock = 128, kL2BytesPerClock = 48;
constexpr double kElementwiseLoadsPerClock = 32;
constexpr double kL2Latency = 950, kPrologueClocks = 1900;  // clocks
constexpr double kMatrixShare = 0.8, kOperandShare = 0.17;
constexpr double kAluPerElement = 6;  // scale, LSE, delta, product, half a conversion of P and of dS
constexpr double kMaskPerElement = 7;
constexpr double kBarrierClocksPerWarp = 26;
constexpr double kBytesPerClockOfSpill = 64;  // a thread's spills are stored and loaded once a step, beside ldmatrix
// Of fp32 adds into L2, bytes of an SM while all SMs add: four floats an instruction, or one in the accumulators'
// order.
constexpr double kVectorAddsPerClock = 12, kScalarAddsPerClock = 4.7;
constexpr double kTurnClocks = 800;  // of a step: an atomic of the tile before, seen through L2
constexpr double kLaunchMicroseconds = 3.6;
constexpr int kSchedulers = 4;  // of an SM
// Registers beside the accumulators: what a kernel needs lest it spill, and what ptxas takes where nothing limits it.
constexpr int kNeededBesideKeyGradients = 65, kNeededBesideQueryGradients = 65, kHoarded = 45;
constexpr int kSampledTiles = 64;

struct Steps {
  double mean = 0, longest = 0, masked = 0;  // of a tile; masked: those of the mean that need a predicate
};

// Blocks of `streamed` rows that tiles of `resident` rows meet, on at most kSampledTiles of them, evenly spread.
// of_keys: whether keys are resident.
Steps count_steps(const AttentionProblem& problem, bool of_keys, std::int64_t resident, std::int64_t streamed) {
  const std::int64_t rows = of_keys ? problem.seq_kv : problem.seq_q, others = of_keys ? problem.seq_q : problem.seq_kv;
  const std::int64_t tiles = (rows + resident - 1) / resident, samples = std::min<std::int64_t>(tiles, kSampledTiles);
  const auto blocks = [&](std::int64_t from, std::int64_t to) {
    return static_cast<double>(std::max<std::int64_t>(0, (to + streamed - 1) / streamed - from / streamed));
  };
  Steps steps;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t tile = samples == 1 ? 0 : i * (tiles - 1) / (samples - 1);
    const std::int64_t first = tile * resident, last = std::min(first + resident, rows) - 1;
    double all = blocks(0, others), masked = 0;
    if (problem.mask == MaskKind::causal) {
      // Query i attends to key j iff j <= i + offset: the first row meets others from `from` on, the last to `to`.
      const auto clamped = [&](std::int64_t row) { return std::clamp<std::int64_t>(row, 0, others); };
      const std::int64_t some =
          of_keys ? clamped(first - problem.mask_offset) : clamped(last + problem.mask_offset + 1);
      const std::int64_t whole =
          of_keys ? clamped(last - problem.mask_offset) : clamped(first + problem.mask_offset + 1);
      all = of_keys ? blocks(some, others) : blocks(0, some);
      masked = std::min(all, of_keys ? blocks(some, whole) : blocks(whole, some));
    }
    steps.mean += all / static_cast<double>(samples);
    steps.masked += masked / static_cast<double>(samples);
    steps.longest = std::max(steps.longest, all);
  }
  return steps;
}

// Clocks of a step of a CTA, apart from what hides what.
struct Step {
  double matrix = 0, shared = 0, exponential = 0, l2 = 0, turn = 0;
  int barriers = 2;
};

struct MainKernel {
  bool of_keys = false;
  int resident = 0, streamed = 0;  // rows
  int threads = 0;
  int accumulators = 0, beside = 0;  // registers
  std::size_t shared_bytes = 0;
  Step step;
  bool heads_apart = false;
  double last_adds = 0, last_turn = 0;  // clocks of a CTA, after its steps
};

double products_of(const AttentionProblem& problem, const KernelConfig& config, int gradients) {
  const double padded = (problem.head_dim + 15) / 16 * 16, d = problem.head_dim;
  return 2.0 * config.block_q * config.block_kv * (2 * padded + gradients * d);
}

// The kernel of dK and dV, and of dQ's sums.
MainKernel key_tiles(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  const bool adds = config.dq != QueryGradient::own;
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim, scores = 2 * q * kv;
  MainKernel kernel;
  kernel.of_keys = true;
  kernel.resident = config.block_kv;
  kernel.streamed = config.block_q;
  kernel.threads = shape.dkdv_threads;
  kernel.accumulators = shape.dkdv_registers;
  kernel.beside = kNeededBesideKeyGradients;
  kernel.shared_bytes = shape.dkdv_shared_bytes;

  double bytes = 4 * d * (2 * config.warps / config.split * q + config.split * kv) + 4 * q * d;
  if (shape.p_shared) bytes += 2 * scores * (1 + config.split);
  if (adds) {
    if (!shape.p_shared) bytes += scores;
    bytes += 2 * config.warps * kv * (shape.dq_rows + d / shape.dq_column_parts);
  }
  kernel.step.matrix = products_of(problem, config, adds ? 3 : 2) / device.mma_flops_per_clock;
  kernel.step.shared = bytes / kSharedBytesPerClock;
  kernel.step.l2 = 4 * q * d / kL2BytesPerClock;
  const double adds_per_clock = device.compute_major >= 9 ? kVectorAddsPerClock : kScalarAddsPerClock;
  if (adds) kernel.step.l2 += 4 * q * d / adds_per_clock;
  kernel.step.barriers += shape.ds_shared ? 1 : 0;
  if (config.dq == QueryGradient::ordered) kernel.step.turn = kTurnClocks;
  if (config.heads_apart) {
    kernel.heads_apart = true;
    kernel.last_adds = 8 * kv * d / adds_per_clock;
    if (config.dq != QueryGradient::atomic) kernel.last_turn = kTurnClocks;
  }
  return kernel;
}

// The kernel of its own for dQ.
MainKernel query_tiles(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  constexpr int kWarpRows = 16;
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim;
  MainKernel kernel;
  kernel.resident = config.block_q;
  kernel.streamed = config.block_kv;
  kernel.threads = shape.dq_threads;
  kernel.accumulators = shape.dq_registers;
  kernel.beside = kNeededBesideQueryGradients;
  kernel.shared_bytes = shape.dq_shared_bytes;
  kernel.step.matrix = products_of(problem, config, 1) / device.mma_flops_per_clock;
  kernel.step.shared = (6 * d * kv * q / kWarpRows + 4 * q * d + 4 * kv * d) / kSharedBytesPerClock;
  kernel.step.l2 = 4 * kv * d / kL2BytesPerClock;
  return kernel;
}

// Adds a kernel's part to the estimate.
void add_kernel(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                MainKernel kernel, CostEstimate* cost) {
  const std::int64_t rows = kernel.of_keys ? problem.seq_kv : problem.seq_q;
  const bool together_heads = kernel.of_keys && !kernel.heads_apart;  // a tile's CTA walks through those of a group
  const std::int64_t heads = problem.batch * (together_heads ? problem.heads_kv : problem.heads_q);
  const auto head_tiles = static_cast<double>((rows + kernel.resident - 1) / kernel.resident);
  const double ctas = head_tiles * static_cast<double>(heads);
  const auto sharing = static_cast<double>(problem.heads_q / problem.heads_kv);
  const double group = together_heads ? sharing : 1;

  const int limit = register_limit(kernel.threads, config.ctas_per_sm, device);
  const int needed = kernel.accumulators + kernel.beside, registers = std::min(limit, (needed + kHoarded) / 8 * 8);
  const auto shared_bytes = static_cast<int>(kernel.shared_bytes) + device.shared_bytes_reserved;
  const int ctas_per_sm = std::max(
      1, std::min({device.registers_per_sm / (registers * kernel.threads), device.shared_bytes_per_sm / shared_bytes,
                   device.threads_per_sm / kernel.threads, device.ctas_per_sm}));
  const double together = std::max(1.0, std::min<double>(ctas_per_sm, std::ceil(ctas / device.sm_count)));
  const double waves = ctas / (static_cast<double>(device.sm_count) * ctas_per_sm);

  Step& step = kernel.step;
  const Steps steps = count_steps(problem, kernel.of_keys, kernel.resident, kernel.streamed);
  const double masked_share = steps.mean > 0 ? steps.masked / steps.mean : 0;
  const double elements = static_cast<double>(kernel.resident) * kernel.streamed;
  step.exponential =
      elements * (1 / device.exp2_per_clock + (kAluPerElement + masked_share * kMaskPerElement) / kAluPerClock);
  if (problem.alignment < 16) step.exponential += 2.0 * kernel.streamed * problem.head_dim / kElementwiseLoadsPerClock;
  const double spilled_bytes = 8.0 * std::max(0, needed - limit) * kernel.threads;  // stored and loaded
  step.shared += spilled_bytes / kBytesPerClockOfSpill;

  const double warps = kernel.threads / 32.0, of_warp = kSchedulers / warps, all_warps = warps * together;
  const double reached = step.matrix / kMatrixShare;
  const double products = std::max(reached, step.shared) + kOperandShare * std::min(reached, step.shared);
  const double barriers = step.barriers * kBarrierClocksPerWarp * warps + step.turn;
  const auto round = [&](double exposed) {
    return round_clocks(all_warps / std::min<double>(kSchedulers, all_warps), products * of_warp,
                        step.exponential * of_warp, barriers + exposed);
  };
  // A pair is copied stages - 1 steps before it is read, counted from the end of the step that frees its place.
  double busy = round(0);
  if (const double exposed = kL2Latency - (config.stages - 1) * busy; exposed > 0) busy = round(exposed);
  const double step_clocks = std::max(busy / together, step.l2);  // of an SM, for each of `together` CTAs

  const auto clocks_of = [&](double count) {
    return group * count * step_clocks + kPrologueClocks / together + kernel.last_adds;
  };
  double clocks = ctas / device.sm_count * clocks_of(steps.mean);
  if (problem.mask == MaskKind::none) clocks = std::ceil(waves) * together * clocks_of(steps.mean);
  clocks = std::max(clocks, together * clocks_of(steps.longest));
  if (kernel.last_turn > 0) {
    // Heads begin one after the other: at most so many of a group stand in line at the end.
    const double at_once = static_cast<double>(device.sm_count) * ctas_per_sm / head_tiles;
    const double line = std::clamp(at_once, 1.0, sharing) - 1;
    clocks += line * (kernel.last_adds + kernel.last_turn);
  }

  const double per_sm = ctas * group * steps.mean / device.sm_count / device.clock_mhz;
  cost->matrix_microseconds += step.matrix * per_sm;
  cost->exponential_microseconds += step.exponential * per_sm;
  cost->shared_microseconds += step.shared * per_sm;
  cost->memory_microseconds += step.l2 * per_sm + kernel.last_adds * ctas / device.sm_count / device.clock_mhz;
  cost->microseconds += clocks / device.clock_mhz + kLaunchMicroseconds;
  cost->registers = std::max(cost->registers, registers);
  if (kernel.of_keys) {
    cost->ctas_per_sm = ctas_per_sm;
    cost->waves = waves;
  }
}

}  // namespace

CostEstimate estimate_cost_backward(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  const auto elements_of = [&](std::int64_t heads, std::int64_t rows) {
    return static_cast<double>(problem.batch * heads) * static_cast<double>(rows) * problem.head_dim;
  };
  const double q_elements = elements_of(problem.heads_q, problem.seq_q);
  const double kv_elements = elements_of(problem.heads_kv, problem.seq_kv);
  const double delta_bytes = 4 * q_elements;  // O and dO
  constexpr double kBytesOfSum = 4 + 4 + 2;   // zeros, then read and rounded
  const bool adds = config.dq != QueryGradient::own;
  const double sums = (adds ? q_elements : 0) + (config.heads_apart ? 2 * kv_elements : 0);
  const int launches = 1 + adds + config.heads_apart + (adds || config.heads_apart);  // conversions, and the zeros
  CostEstimate cost;
  cost.memory_microseconds = (delta_bytes + kBytesOfSum * sums) / (device.memory_gbps * 1e3);
  cost.microseconds = cost.memory_microseconds + launches * kLaunchMicroseconds;
  add_kernel(problem, config, device, key_tiles(problem, config, device), &cost);
  if (!adds) add_kernel(problem, config, device, query_tiles(problem, config, device), &cost);
  return cost;
}

}  // namespace attune
