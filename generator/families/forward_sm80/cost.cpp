#include "generator/families/forward_sm80/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "generator/device/register_limit.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm80/plan.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/pair_cost.h"
#include "generator/families/shared/queueing_model.h"
#include "generator/families/shared/terms.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

// Clocks of one SM for one step (a block of keys) of one CTA: counted work over the rates of the units.
// D16 is D rounded up to 16 (what Q K^T pays for a tail of 8), w the warps of the CTA.
//
//   matrix      = 2 q kv (D16 + D) / mma rate
//   shared      = (w * 4 kv D + 4 kv D + Q from shared memory: 2 q D) / 128 + spilled registers * w * 2
//                 since each warp reads all of K and V, which are written once
//   exponential = q kv (1 / 16 + 3.2 / 126) + 0.4 q + rescale: q D / 126 + masked steps: 7 q kv / 126 + copies
//                 of which the first step has no rescale
//   l2          = 4 kv D / 48
//
// A warp does its products, then its exponentials; the warps of a scheduler share its tensor core and its ALUs. So a
// step's time is that of a closed network of two stations, products and exponentials, and a delay, the barriers, with
// as many customers as a scheduler has warps: the more there are, the more of the shorter work is done beside the
// longer one.
//
//   products = max(matrix / 0.8, shared) + 0.17 min(matrix / 0.8, shared)
//   step     = max(network(products, exponential, barriers + exposed latency of loads), l2)
//
// Steps of a CTA are counted to its last attended key. The kernel takes the sum of all CTAs' work over the SMs, plus
// what its last wave leaves idle, and never less than device memory needs.
//
// Rates are those measured on an H200 one by one; per clock and SM they differ little between architectures. What no
// single measurement gives (marked "fitted") comes from 6568 kernels timed on an H200; docs/notebook/forward_sm80.md
// tells how well it fits.
namespace attune {
namespace {
constexpr double kElementwiseLoadsPerClock = 32;  // 16-bit loads where rows are not aligned
constexpr double kL2Latency = 950;                // clocks, under load

constexpr double kMatrixShare = 0.8;    // fitted: of the mma rate, which only independent products reach
constexpr double kOperandShare = 0.17;  // fitted: of the shorter of mma and ldmatrix that the other does not hide
constexpr double kAluPerElement = 3.2;  // fitted: issue slots beside ex2 (FFMA, max, FADD and half a conversion)
constexpr double kRowClocks = 0.4;      // of a row's maximum at each step: shuffles among four lanes, comparisons
// Fitted: instructions for an element of a masked step: comparison, selection, the check for rows without a key, and
// code that runs once per CTA and so comes from far.
constexpr double kMaskPerElement = 7;
// Fitted: clocks that a warp waits at the barrier of a step, for each warp that it waits for.
constexpr double kBarrierClocksPerWarp = 26;
// Fitted: with one stage K is loaded beside the softmax and V beside Q K^T: how much of a step loads are ahead.
constexpr double kAheadWithOneStage = 0.3;
// Fitted: a chunk's row and column are divisions where rows hold no power of two of chunks: instructions for a chunk.
constexpr double kInstructionsPerIrregularChunk = 46;
// Fitted: a copy in which some threads have no chunk branches: instructions of a warp.
constexpr double kInstructionsPerPartialCopy = 22;
// A spilled register is stored and loaded once a step, by the pipe of shared memory: clocks of a warp for each.
constexpr double kClocksPerSpill = 2;
// Fitted: copies keep addresses, so that a kernel that spills does so by a fifth more for each chunk that a thread
// copies.
constexpr double kSpillPerChunk = 0.22;
// Fitted: registers that addresses take beside the estimate where rows hold no power of two of chunks.
constexpr int kIrregularRegisters = 16;
// And for each chunk beyond these that a thread copies, whose address is kept from step to step: by what 28 kernels of
// one and two warps spill (D = 104 to 248).
constexpr double kChunksWithoutAddress = 8, kRegistersPerChunk = 9;
constexpr double kStartClocks = 530;         // fitted: of a CTA, that the others on its SM do not hide
constexpr double kBoundsCheckCost = 0.015;   // of a step, which lengths that are multiples of the tiles save
constexpr double kLaunchMicroseconds = 3.3;  // fitted, as is kStartClocks, on 32 shapes of less than 60 us
constexpr double kMemoryShare = 0.06;        // fitted: of device memory's time that is not hidden

struct StepClocks {
  double matrix = 0, exponential = 0, shared = 0, l2 = 0;
  double total = 0;  // of one CTA's step, while `ctas` share the SM: each of them takes ctas * total
};

// Whether addresses of a row's chunks need divisions, and are not constants apart.
bool is_irregular(const ForwardSm80Shape& shape) { return !std::has_single_bit(static_cast<unsigned>(shape.chunks)); }

// Instructions of a CTA's threads that copy one block of K and V, beyond the plain ones, which other work hides.
double copy_clocks(const ForwardSm80Shape& shape, const KernelConfig& config) {
  const int chunks = config.block_kv * shape.chunks;
  double instructions = 0;
  if (is_irregular(shape)) instructions += kInstructionsPerIrregularChunk * 2 * chunks / 32;
  if (chunks % shape.threads != 0) instructions += kInstructionsPerPartialCopy * config.warps;
  return instructions / kSchedulers;
}

StepClocks step_clocks(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       const ForwardSm80Shape& shape, double masked_share, double rescaled_share, double ctas,
                       double spilled) {
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim_v();
  const double padded = round_up(problem.head_dim_qk(), 16);
  const double element_bytes = size_of(problem.dtype), kv_bytes = element_bytes * kv * (problem.head_dim_qk() + d);

  StepClocks clocks;
  clocks.matrix = 2 * q * kv * (padded + d) / device.mma_flops_per_clock;
  clocks.exponential = q * kv * (1 / device.exp2_per_clock + kAluPerElement / device.alu_per_clock) + q * kRowClocks;
  if (problem.softcap != 0) clocks.exponential += q * kv / device.exp2_per_clock;  // tanh
  clocks.exponential += q * kv * alu_of_dropout(problem) / device.alu_per_clock;
  if (problem.alibi) clocks.exponential += q * kv * kAluOfAlibi / device.alu_per_clock;
  clocks.exponential += cost_of_pairs(problem, config, device, q * kv).clocks;
  clocks.exponential += masked_share * q * kv * kMaskPerElement / device.alu_per_clock;
  clocks.exponential += copy_clocks(shape, config);
  if (config.rescale_threshold == 0) clocks.exponential += rescaled_share * q * d / device.alu_per_clock;
  if (problem.alignment < 16) clocks.exponential += kv_bytes / element_bytes / kElementwiseLoadsPerClock;
  const double q_bytes = config.q_in_registers ? 0 : element_bytes * q * problem.head_dim_qk();
  clocks.shared = (config.warps * kv_bytes + q_bytes + kv_bytes) / device.shared_bytes_per_clock;
  clocks.shared += spilled * config.warps * kClocksPerSpill;
  clocks.l2 = kv_bytes / device.l2_bytes_per_clock;

  const double reached = clocks.matrix / kMatrixShare;
  const double products = std::max(reached, clocks.shared) + kOperandShare * std::min(reached, clocks.shared);
  // A warp has the tensor core and the ALUs of its scheduler only.
  const double of_warp = (config.even_tiles ? 1 - kBoundsCheckCost : 1) * kSchedulers / config.warps;
  const double barriers = (config.stages == 1 ? 2 : 1) * kBarrierClocksPerWarp * config.warps;
  const double warps = config.warps * ctas;
  const auto round = [&](double exposed) {
    return round_clocks(warps / std::min<double>(kSchedulers, warps), products * of_warp, clocks.exponential * of_warp,
                        barriers + exposed);
  };
  // Loads are issued stages - 1 steps ahead; what they take longer is hidden only by other warps.
  const double ahead = config.stages == 1 ? kAheadWithOneStage : config.stages - 1;
  double busy = round(0);
  if (const double exposed = kL2Latency - ahead * busy; exposed > 0) busy = round(exposed);
  clocks.total = std::max(busy / ctas, clocks.l2);
  return clocks;
}

// K and V leave L2 between two tiles of a head if the heads that are at work together do not fit.
double device_memory_bytes(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                           double tiles, double slots, double keys_of_tile) {
  const double least = count_bytes(problem);
  const bool by_heads =
      config.tile_order == TileOrder::tile_major || config.tile_order == TileOrder::tile_major_reversed;
  const double heads = static_cast<double>(problem.batch * problem.heads_q / heads_of_tile(problem, config));
  const double kv_bytes = size_of(problem.dtype) * static_cast<double>(problem.batch * problem.heads_kv) *
                          static_cast<double>(problem.seq_kv) * (problem.head_dim_qk() + problem.head_dim_v());
  if (!by_heads || kv_bytes <= 0.8 * static_cast<double>(device.l2_bytes)) return least;
  const double passes = std::max(1.0, tiles * heads / std::max(heads, slots));
  const double share = lengthens_tiles(problem.mask) ? 0.5 : keys_of_tile / static_cast<double>(problem.seq_kv);
  return least + kv_bytes * (passes - 1) * share;
}

// What the end of the kernel leaves idle, as a share of the longest CTA's time alone on its SM.
double tail_share(const AttentionProblem& problem, TileOrder order, double waves) {
  // Fitted: where all tiles take equally long the CTAs drift apart, wave by wave.
  if (!lengthens_tiles(problem.mask)) return 0.8 * std::clamp((waves - 1) / 4, 0.0, 1.0);
  switch (order) {
    case TileOrder::head_major:
      return 1.2;  // not in the fitted space, like `heads`: a little worse than reversed
    case TileOrder::head_major_reversed:
      return 0.9;  // fitted: the last head begins with its longest tile
    case TileOrder::tile_major:
      return 1.5;
    case TileOrder::tile_major_reversed:
    case TileOrder::l2_sections:  // backward's tiles of keys, of which the last are the shortest
    case TileOrder::l2_sections_reversed:
      return 0.25;  // fitted: the shortest tiles come last
  }
  return 0;
}
}  // namespace

CostEstimate forward_sm80_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  CostEstimate cost;
  const int limit = register_limit(shape.threads, config.ctas_per_sm, device);
  const ForwardSm80Residency residency = forward_sm80_residency(shape, config, device);
  cost.registers = residency.registers;
  cost.ctas_per_sm = residency.ctas;
  const double chunks_of_thread = static_cast<double>(config.block_kv) * shape.chunks / shape.threads;
  double needed = shape.registers_estimate;
  if (is_irregular(shape))
    needed += kIrregularRegisters + kRegistersPerChunk * std::max(0.0, chunks_of_thread - kChunksWithoutAddress);
  const double spilled = std::max(0.0, needed - limit) * (1 + kSpillPerChunk * chunks_of_thread);

  const int tile_queries = config.block_q / shape.group;
  const double tiles = static_cast<double>(ceil_div(problem.seq_q, tile_queries));
  const KeySplit split = forward_sm80_split(shape, config, device);
  const double parts = split.parts_of(problem);
  const double ctas = tiles * static_cast<double>(problem.batch * problem.heads_q / shape.group) * parts;
  const double slots = static_cast<double>(device.sm_count) * cost.ctas_per_sm;
  cost.waves = ctas / slots;

  StepCount steps = MaskGeometry(problem).key_steps(tile_queries, config.block_kv);
  if (parts > 1) {  // of a part
    steps.mean /= parts;
    steps.masked /= parts;
    steps.longest = std::ceil(steps.longest / parts);
  }
  const double masked_share = steps.mean > 0 ? steps.masked / steps.mean : 0;
  const double rescaled_share = 1 - 1 / std::max(1.0, steps.mean);  // of steps: all but the first
  const double memory_bytes_per_clock = device.memory_gbps * 1e3 / device.clock_mhz / device.sm_count;
  const double ends = 2.0 * config.block_q * (problem.head_dim_qk() + problem.head_dim_v()) /
                      memory_bytes_per_clock;  // Q and O of a CTA
  // Clocks that an SM spends per CTA while `together` of them share it.
  const auto clocks_of = [&](double together, double count) {
    return count * step_clocks(problem, config, device, shape, masked_share, rescaled_share, together, spilled).total +
           kStartClocks + ends;
  };

  const double full_waves = std::floor(cost.waves);
  const double rest = std::ceil((ctas - full_waves * slots) / device.sm_count);
  const double resident = full_waves > 0 ? cost.ctas_per_sm : rest;
  double clocks = 0;
  if (!lengthens_tiles(problem.mask)) {
    clocks = full_waves * resident * clocks_of(resident, steps.mean);
    if (rest > 0) clocks += rest * clocks_of(rest, steps.mean);
  } else {
    // CTAs of different length fill the SMs evenly but for the last of them.
    clocks = ctas / device.sm_count * clocks_of(resident, steps.mean);
    clocks = std::max(clocks, resident * clocks_of(resident, steps.longest));
  }
  clocks += tail_share(problem, config.tile_order, cost.waves) * clocks_of(1, steps.longest) / std::max(1.0, resident);

  const double clocks_per_microsecond = device.clock_mhz;
  const double per_sm = ctas * steps.mean / device.sm_count / clocks_per_microsecond;
  const StepClocks step = step_clocks(problem, config, device, shape, masked_share, rescaled_share, resident, spilled);
  cost.matrix_microseconds = step.matrix * per_sm;
  cost.exponential_microseconds = step.exponential * per_sm;
  cost.shared_microseconds = step.shared * per_sm;
  const double keys_of_tile = std::min(steps.mean * parts * config.block_kv, static_cast<double>(problem.seq_kv));
  const double device_memory =
      device_memory_bytes(problem, config, device, tiles, slots, keys_of_tile) / (device.memory_gbps * 1e3);
  cost.memory_microseconds = std::max(step.l2 * per_sm, device_memory);
  cost.microseconds =
      std::max(clocks / clocks_per_microsecond, device_memory) + kMemoryShare * device_memory + kLaunchMicroseconds;
  cost.microseconds += combine_microseconds(problem, split, device);
  return cost;
}

}  // namespace attune
