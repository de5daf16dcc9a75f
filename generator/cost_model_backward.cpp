#include "generator/cost_model_backward.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/backward_sm80_plan.h"
#include "generator/closed_network.h"
#include "generator/register_limit.h"

// As forward's model (cost_model.cpp): clocks of an SM for one step of a CTA, counted work over the rates of the units.
// A kernel keeps one tile resident and streams pairs of tiles past it. Of the kernel of dK and dV, keys are resident
// and blocks of queries stream; of that of dQ, queries are and blocks of keys do. With r resident and t streamed rows,
// w warps of which p share the same resident rows, D16 the head dim rounded up to 16, and g gradients (2, or 1):
//
//   matrix      = 2 r t (2 p D16 + g D) / mma rate                          S and dP, then the gradients
//   shared      = (w (2 + g / p) 2 t D + 2 p 2 r D + 2 * 2 t D) / 128       B operands of each warp, A operands, copies
//   exponential = p r t (1 / 16 + 6 / 126) + masked steps: 7 p r t / 126
//   l2          = 2 * 2 t D / 48
//
// Nothing here is fitted yet; what forward's model has from measurements of its kernels is taken over.
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
constexpr double kLaunchMicroseconds = 3.6;
constexpr int kSchedulers = 4;  // of an SM
// Registers beside the accumulators: what a kernel needs lest it spill, and what ptxas takes where nothing limits it.
constexpr int kNeededBesideKeyGradients = 115, kNeededBesideQueryGradients = 70, kHoarded = 35;
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

struct MainKernel {
  bool of_keys = false;
  double resident = 0, streamed = 0;  // rows
  int threads = 0, sharing = 1, gradients = 1;
  int accumulators = 0, beside = 0;  // registers
  std::size_t shared_bytes = 0;
  double ctas = 0;
};

// Adds a kernel's part to the estimate.
void add_kernel(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                const MainKernel& kernel, CostEstimate* cost) {
  const int limit = register_limit(kernel.threads, config.ctas_per_sm, device);
  const int needed = kernel.accumulators + kernel.beside;
  const int registers = std::min(limit, (needed + kHoarded) / 8 * 8);
  const auto shared_bytes = static_cast<int>(kernel.shared_bytes) + device.shared_bytes_reserved;
  const int ctas_per_sm = std::max(
      1, std::min({device.registers_per_sm / (registers * kernel.threads), device.shared_bytes_per_sm / shared_bytes,
                   device.threads_per_sm / kernel.threads, device.ctas_per_sm}));

  const double r = kernel.resident, t = kernel.streamed, d = problem.head_dim,
               padded = (problem.head_dim + 15) / 16 * 16;
  const double warps = kernel.threads / 32.0, p = kernel.sharing, g = kernel.gradients;
  const Steps steps = count_steps(problem, kernel.of_keys, static_cast<std::int64_t>(r), static_cast<std::int64_t>(t));
  const double group = kernel.of_keys ? static_cast<double>(problem.heads_q / problem.heads_kv) : 1;
  const double pair_bytes = 4 * t * d, masked_share = steps.mean > 0 ? steps.masked / steps.mean : 0;

  const double matrix = 2 * r * t * (2 * p * padded + g * d) / device.mma_flops_per_clock;
  const double spilled_bytes = 8.0 * std::max(0, needed - limit) * kernel.threads;  // stored and loaded
  const double shared = (warps * (2 + g / p) * 2 * t * d + 4 * p * r * d + pair_bytes) / kSharedBytesPerClock +
                        spilled_bytes / kBytesPerClockOfSpill;
  const double elements = p * r * t;
  double exponential =
      elements * (1 / device.exp2_per_clock + (kAluPerElement + masked_share * kMaskPerElement) / kAluPerClock);
  if (problem.alignment < 16) exponential += pair_bytes / 2 / kElementwiseLoadsPerClock;
  const double l2 = pair_bytes / kL2BytesPerClock;

  const double slots = static_cast<double>(device.sm_count) * ctas_per_sm, waves = kernel.ctas / slots;
  const double together = std::max(1.0, std::min<double>(ctas_per_sm, std::ceil(kernel.ctas / device.sm_count)));
  const double reached = matrix / kMatrixShare;
  const double products = std::max(reached, shared) + kOperandShare * std::min(reached, shared);
  const double of_warp = kSchedulers / warps, all_warps = warps * together;
  const double barriers = 2 * kBarrierClocksPerWarp * warps;
  const auto round = [&](double exposed) {
    return round_clocks(all_warps / std::min<double>(kSchedulers, all_warps), products * of_warp, exponential * of_warp,
                        barriers + exposed);
  };
  // A pair is copied stages - 1 steps before it is read, counted from the end of the step that frees its place.
  double busy = round(0);
  if (const double exposed = kL2Latency - (config.stages - 1) * busy; exposed > 0) busy = round(exposed);
  const double step = std::max(busy / together, l2);  // a CTA's, while `together` share the SM: each takes as often

  const auto clocks_of = [&](double count) { return group * count * step + kPrologueClocks / together; };
  double clocks = kernel.ctas / device.sm_count * clocks_of(steps.mean);
  if (problem.mask == MaskKind::none) clocks = std::ceil(waves) * together * clocks_of(steps.mean);
  clocks = std::max(clocks, together * clocks_of(steps.longest));

  const double per_sm = kernel.ctas * group * steps.mean / device.sm_count / device.clock_mhz;
  cost->matrix_microseconds += matrix * per_sm;
  cost->exponential_microseconds += exponential * per_sm;
  cost->shared_microseconds += shared * per_sm;
  cost->memory_microseconds += l2 * per_sm;
  cost->microseconds += clocks / device.clock_mhz + kLaunchMicroseconds;
  cost->registers = std::max(cost->registers, registers);
  if (kernel.of_keys) {
    cost->ctas_per_sm = ctas_per_sm;
    cost->waves = waves;
  }
}

double tiles_of(std::int64_t rows, int block, std::int64_t heads) {
  return static_cast<double>((rows + block - 1) / block * heads);
}

}  // namespace

CostEstimate estimate_cost_backward(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  CostEstimate cost;
  // Delta reads O and dO once.
  const double o_bytes = 2.0 * static_cast<double>(problem.batch * problem.heads_q) *
                         static_cast<double>(problem.seq_q) * problem.head_dim;
  cost.memory_microseconds = 2 * o_bytes / (device.memory_gbps * 1e3);
  cost.microseconds = cost.memory_microseconds + kLaunchMicroseconds;

  MainKernel dkdv;
  dkdv.of_keys = true;
  dkdv.resident = config.block_kv;
  dkdv.streamed = config.block_q;
  dkdv.threads = shape.dkdv_threads;
  dkdv.sharing = shape.column_parts;
  dkdv.gradients = 2;
  dkdv.accumulators = shape.dkdv_registers;
  dkdv.beside = kNeededBesideKeyGradients;
  dkdv.shared_bytes = shape.dkdv_shared_bytes;
  dkdv.ctas = tiles_of(problem.seq_kv, config.block_kv, problem.batch * problem.heads_kv);
  add_kernel(problem, config, device, dkdv, &cost);

  MainKernel dq;
  dq.resident = config.block_q;
  dq.streamed = config.block_kv;
  dq.threads = shape.dq_threads;
  dq.accumulators = shape.dq_registers;
  dq.beside = kNeededBesideQueryGradients;
  dq.shared_bytes = shape.dq_shared_bytes;
  dq.ctas = tiles_of(problem.seq_q, config.block_q, problem.batch * problem.heads_q);
  add_kernel(problem, config, device, dq, &cost);
  return cost;
}

}  // namespace attune
