#include "generator/families/backward_sm80/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "generator/device/register_limit.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/tile_sequence.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm80/shape.h"
#include "generator/families/shared/pair_cost.h"
#include "generator/families/shared/queueing_model.h"
#include "generator/families/shared/terms.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

// As forward's model (forward_sm80/cost.cpp): clocks of an SM for one step of a CTA, counted work over the rates of the
// units. A kernel keeps one tile resident and streams pairs of tiles past it: the kernel of key tiles blocks of queries
// past its keys, that of dQ blocks of keys past its queries. With q and kv of the config, w warps of which s share the
// same keys (w / s = n), D16 the head dim rounded up to 16, and a = 1 where the kernel of key tiles adds to dQ, else 0:
//
//   key tiles:  matrix      = 2 q kv (2 D16 + (2 + a) D) / mma rate, D rounded up to what s parts, or dQ's, divide it
//   into
//               shared      = (4 D (2 n q + s kv) + scores + dQ's operands + copies 4 q D) / 128
//                             scores that go through shared memory: 2 q kv each when written, s times that when read
//                             dQ: 2 w kv (rows of a warp + columns of a warp)
//               l2          = 4 q D / 48 + a 4 q D / add rate
//   dQ:         matrix      = 2 q kv (2 D16 + D) / mma rate
//               shared      = (6 D kv q / 16 + 4 q D + copies 4 kv D) / 128
//               l2          = 4 kv D / 48
//               and of a tile, where heads are apart: 8 kv D / add rate
//   both:       exponential = q kv (1 / 16 + 4.7 / 126) + masked steps: 7 q kv / 126 + instructions of copies
//               products    = max(matrix / 0.8, shared) + share min(matrix / 0.8, shared)
//               step        = norm(network(products, exponential, barriers + exposed latency of copies), l2)
//
// Tiles are dealt to the SMs as the hardware does it, in the order of the config: what the last ones leave idle follows
// without a constant (of grouped heads and head after head under a mask up to half of the time). Where heads are apart,
// the kernel of key tiles has a tile for each query head, or for each part of its queries; in a fixed order, those of
// the same keys that end together add one after the other. Delta, the zeros of sums and their conversion take device
// memory's time; that of the other kernels' operands, each moved once, adds to their tiles' by the same norm as L2's to
// the SM's in a step.
//
// Rates of units are measured; "fitted" constants come from 4600 kernels of 115 problems timed on an H200
// (docs/notebook/backward_sm80.md), those that are not marked from forward's model.
namespace attune {
namespace {
constexpr double kElementwiseLoadsPerClock = 32;
constexpr double kL2Latency = 590;  // fitted: clocks, beside what L2 takes to deliver a pair
// Fitted: of a CTA's begin and end, and of a query head's, beside their bytes; and steps of a query head, for what of
// its first and last one nothing runs beside.
constexpr double kFillClocks = 850, kFillSteps = 0.85;
// Fitted: by which times of the SM, L2 and device memory add up; with infinity the longest alone would count.
constexpr double kNorm = 3.25;
constexpr double kMatrixShare = 0.8;
// Fitted: of the shorter of mma and ldmatrix that the other does not hide. Where a barrier parts the products of a step
// all warps read their fragments at once, and multiply at once.
constexpr double kOperandShare = 0.16, kOperandShareOfPhases = 0.585;
constexpr double kAluPerElement = 4.7;  // fitted: scale, LSE, delta, product, half a conversion of P and of dS
constexpr double kMaskPerElement = 7;
constexpr double kAluOfSlope = 3;             // of an element: 1 - tanh², and the products before and after it
constexpr double kInstructionsPerCopy = 9;    // fitted: of a warp: predicate and address beside cp.async
constexpr double kBarrierClocksPerWarp = 13;  // fitted
constexpr double kBytesPerClockOfSpill = 64;  // a thread's spills are stored and loaded once a step, beside ldmatrix
// Bytes of fp32 that an SM adds into L2 in a clock, while all SMs add: four floats an instruction, or one in the
// accumulators' order.
constexpr double kVectorAddsPerClock = 12, kScalarAddsPerClock = 4.7;
constexpr double kTicketClocks = 1650;  // fitted: of a step: an atomic of the tile before, seen through L2
constexpr double kLaunchMicroseconds = 3.6;
constexpr double kMemoryRate = 0.89;  // measured: copies, of the rate specified
// Registers beside the accumulators: what a kernel needs lest it spill, and what ptxas takes to load fragments ahead
// where nothing limits it and a product is more than one fragment deep.
constexpr int kBesideAccumulators = 65, kLoadedAhead = 55, kDepthOfFragment = 16;
constexpr int kRestingRegisters = 20;  // fitted: of a thread, that are spilled around the steps for next to nothing

// Clocks of a step of a CTA, apart from what hides what.
struct Step {
  double matrix = 0, shared = 0, exponential = 0, ticket = 0;
  double issue = 0;           // of instructions that copy, beside the exponentials
  double copy = 0, adds = 0;  // of L2
  int barriers = 2;
};

struct MainKernel {
  bool of_keys = false;
  int resident = 0, streamed = 0;  // rows
  int threads = 0;
  int accumulators = 0;      // registers of a thread
  double operand_share = 0;  // of the shorter of mma and ldmatrix, that the other does not hide
  std::size_t shared_bytes = 0;
  Step step;
  bool kv_grad_per_query_head = false;
  int query_parts = 1;
  double last_adds = 0, last_ticket = 0;  // clocks of a CTA, after its steps
  double memory_bytes = 0;                // that device memory moves at least
};

// Time of what two units do beside each other: more than the longer takes alone.
double of_both(double a, double b) { return std::pow(std::pow(a, kNorm) + std::pow(b, kNorm), 1 / kNorm); }

double memory_bytes_per_microsecond(const DeviceSpec& device) { return kMemoryRate * device.memory_gbps * 1e3; }

// The elements of all heads.
double elements(const AttentionProblem& problem, std::int64_t heads, std::int64_t rows) {
  return static_cast<double>(problem.batch * heads) * static_cast<double>(rows) * problem.head_dim;
}
double elements_q(const AttentionProblem& problem) { return elements(problem, problem.heads_q, problem.seq_q); }
double elements_kv(const AttentionProblem& problem) { return elements(problem, problem.heads_kv, problem.seq_kv); }

// Columns of a head that `parts` warps compute together: each part is as wide as the widest.
double columns_of(const AttentionProblem& problem, int parts) {
  return 8.0 * parts * ceil_div(problem.head_dim / 8, parts);
}

// The clocks of S and dP, a head dim deep, and of products with so many columns.
double product_clocks(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                      double columns) {
  const double padded = round_up(problem.head_dim, 16);
  return 2.0 * config.block_q * config.block_kv * (2 * padded + columns) / device.mma_flops_per_clock;
}

// The clocks of instructions that copy so many rows of two tensors: threads that share a row are a power of two.
double copy_clocks(const AttentionProblem& problem, double rows) {
  const double lanes = std::bit_ceil(static_cast<unsigned>(problem.head_dim / 8));
  return kInstructionsPerCopy * 2 * rows * lanes / 32 / kSchedulers;
}

// The kernel of dK and dV, and of dQ's sums.
MainKernel key_tiles(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  const bool adds = config.dq != DqAccumulation::separate_kernel;
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim, scores = 2 * q * kv;
  const double key_columns = columns_of(problem, config.query_warps);
  MainKernel kernel;
  kernel.of_keys = true;
  kernel.resident = config.block_kv;
  kernel.streamed = config.block_q;
  kernel.threads = shape.dkdv_threads;
  kernel.accumulators = shape.dkdv_registers;
  kernel.operand_share = shape.ds_shared ? kOperandShareOfPhases : kOperandShare;
  kernel.shared_bytes = shape.dkdv_shared.bytes();

  double columns = 2 * key_columns;
  double bytes =
      4 * (config.warps / config.query_warps * q * (d + key_columns) + config.query_warps * kv * d) + 4 * q * d;
  if (shape.p_shared) bytes += 2 * scores * (1 + config.query_warps);
  if (adds) {
    const double dq_columns = columns_of(problem, shape.dq_column_parts);
    columns += dq_columns;
    if (!shape.p_shared) bytes += scores;
    bytes += 2 * config.warps * kv * (shape.dq_rows + dq_columns / shape.dq_column_parts);
  }
  kernel.step.matrix = product_clocks(problem, config, device, columns);
  kernel.step.shared = bytes / device.shared_bytes_per_clock;
  const double adds_per_clock = device.compute_major >= 9 ? kVectorAddsPerClock : kScalarAddsPerClock;
  kernel.step.issue = copy_clocks(problem, q);
  kernel.step.copy = 4 * q * d / device.l2_bytes_per_clock;
  if (adds) kernel.step.adds = 4 * q * d / adds_per_clock;
  kernel.step.barriers += shape.ds_shared ? 1 : 0;
  if (config.dq == DqAccumulation::ordered) kernel.step.ticket = kTicketClocks;
  // Q, dO, K and V are read and dK and dV written once, sums are read and written.
  kernel.memory_bytes = (adds ? 12 : 4) * elements_q(problem) + (adds_key_sums(config) ? 20 : 8) * elements_kv(problem);
  kernel.query_parts = config.query_parts;
  if (adds_key_sums(config)) {
    kernel.kv_grad_per_query_head = true;
    kernel.last_adds = 8 * kv * d / adds_per_clock;
    if (config.dq != DqAccumulation::atomic) kernel.last_ticket = kTicketClocks;
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
  kernel.operand_share = kOperandShare;
  kernel.shared_bytes = shape.dq_shared.bytes();
  kernel.step.matrix = product_clocks(problem, config, device, d);
  kernel.step.shared = (6 * d * kv * q / kWarpRows + 4 * q * d + 4 * kv * d) / device.shared_bytes_per_clock;
  kernel.step.issue = copy_clocks(problem, kv);
  kernel.step.copy = 4 * kv * d / device.l2_bytes_per_clock;
  kernel.memory_bytes = 6 * elements_q(problem) + 4 * elements_kv(problem);
  return kernel;
}

// Clocks that an SM takes for a step of a CTA while `together` of them share it.
double clocks_of_step(const MainKernel& kernel, const KernelConfig& config, double together) {
  const Step& step = kernel.step;
  const double warps = kernel.threads / 32.0, of_warp = kSchedulers / warps, all_warps = warps * together;
  const double reached = step.matrix / kMatrixShare;
  const double products = std::max(reached, step.shared) + kernel.operand_share * std::min(reached, step.shared);
  const double barriers = step.barriers * kBarrierClocksPerWarp * warps + step.ticket;
  const auto round = [&](double exposed) {
    return round_clocks(all_warps / std::min<double>(kSchedulers, all_warps), products * of_warp,
                        step.exponential * of_warp, barriers + exposed);
  };
  // A pair is copied stages - 1 steps before it is read, counted from the end of the step that frees its place.
  double busy = round(0);
  if (const double exposed = kL2Latency + step.copy - (config.stages - 1) * busy; exposed > 0) busy = round(exposed);
  return of_both(busy / together, step.copy + step.adds);
}

// Adds a kernel's part to the estimate.
void add_kernel(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                MainKernel kernel, CostEstimate* cost) {
  const std::int64_t rows = kernel.of_keys ? problem.seq_kv : problem.seq_q;
  TileSequence sequence;
  sequence.tiles = ceil_div(rows, kernel.resident);
  const bool together_heads =
      kernel.of_keys && !kernel.kv_grad_per_query_head;  // a tile's CTA walks through those of a group
  sequence.parts = kernel.query_parts;
  sequence.heads = problem.batch * (together_heads ? problem.heads_kv : problem.heads_q) * sequence.parts;
  if (kernel.of_keys) {
    if (config.tile_order == TileOrder::l2_sections)
      sequence.section_heads = key_tile_section_heads(problem, config, device);
    sequence.last_first = config.dq == DqAccumulation::ordered;
  }
  const auto ctas = static_cast<double>(sequence.tiles * sequence.heads);
  const auto sharing = static_cast<double>(problem.heads_q / problem.heads_kv);
  const double group = together_heads ? sharing : 1;

  const int limit = register_limit(kernel.threads, config.ctas_per_sm, device);
  const int needed = kernel.accumulators + kBesideAccumulators;
  const int registers = std::min(limit, round_up(needed + (problem.head_dim > kDepthOfFragment ? kLoadedAhead : 0), 8));
  const auto shared_bytes = static_cast<int>(kernel.shared_bytes) + device.shared_bytes_reserved;
  const int ctas_per_sm = std::max(1, std::min({device.registers_per_sm / (round_up(registers, 8) * kernel.threads),
                                                device.shared_bytes_per_sm / shared_bytes,
                                                device.threads_per_sm / kernel.threads, device.ctas_per_sm}));
  const double together = std::max(1.0, std::min<double>(ctas_per_sm, std::ceil(ctas / device.sm_count)));

  Step& step = kernel.step;
  const MaskGeometry mask(problem);
  const StepCount steps = kernel.of_keys ? mask.query_steps(kernel.resident, kernel.streamed)
                                         : mask.key_steps(kernel.resident, kernel.streamed);
  const double tile_steps = steps.mean / kernel.query_parts;
  const double masked_share = steps.mean > 0 ? steps.masked / steps.mean : 0;
  const double pairs = static_cast<double>(kernel.resident) * kernel.streamed;
  step.exponential = step.issue + pairs * (1 / device.exp2_per_clock +
                                           (kAluPerElement + masked_share * kMaskPerElement) / device.alu_per_clock);
  if (problem.softcap != 0)  // a tanh, its derivative, and two products
    kernel.step.exponential += pairs * (1 / device.exp2_per_clock + kAluOfSlope / device.alu_per_clock);
  if (problem.dropout != 0)
    step.exponential += pairs * (alu_of_dropout(problem) + kAluOfKeptGradient) / device.alu_per_clock;
  if (problem.alibi) step.exponential += pairs * kAluOfAlibi / device.alu_per_clock;
  step.exponential += cost_of_pairs(problem, config, device, pairs).clocks;
  if (problem.alignment < 16) step.exponential += 2.0 * kernel.streamed * problem.head_dim / kElementwiseLoadsPerClock;
  const double spilled_bytes =
      8.0 * std::max(0, needed - limit - kRestingRegisters) * kernel.threads;  // stored and loaded
  step.shared += spilled_bytes / kBytesPerClockOfSpill;

  // A CTA holds a slot while `together` share the SM; where tiles run out a CTA has it alone.
  const double slot_step = together * clocks_of_step(kernel, config, together);
  const double lone_step = clocks_of_step(kernel, config, 1);
  // The resident tiles come and their gradients go; of each head the first pair is waited for.
  const double around_bytes = 4.0 * problem.head_dim * (2 * kernel.resident + group * kernel.streamed);
  const double around = (1 + group) * kFillClocks + group * kFillSteps * lone_step +
                        around_bytes / device.l2_bytes_per_clock + kernel.last_adds;
  const double slots = device.sm_count * together;
  const double uneven = uneven_steps(problem, {kernel.of_keys, kernel.resident, kernel.streamed}, sequence,
                                     static_cast<std::int64_t>(slots), around / (group * slot_step));
  double clocks = ctas / slots * (group * tile_steps * slot_step + around) + group * uneven * lone_step;
  if (kernel.last_ticket > 0) {
    // Heads and their parts begin one after the other: at most so many of a group stand in line at the end.
    const double adders = sharing * kernel.query_parts;
    const double line = std::clamp(slots / static_cast<double>(sequence.tiles), 1.0, adders) - 1;
    clocks += line * (kernel.last_adds + kernel.last_ticket);
  }

  const double per_sm = ctas * group * tile_steps / device.sm_count / device.clock_mhz;
  cost->matrix_microseconds += step.matrix * per_sm;
  cost->exponential_microseconds += step.exponential * per_sm;
  cost->shared_microseconds += step.shared * per_sm;
  cost->memory_microseconds +=
      (step.copy + step.adds) * per_sm + kernel.last_adds * ctas / device.sm_count / device.clock_mhz;
  const double memory = kernel.memory_bytes / memory_bytes_per_microsecond(device);
  cost->microseconds += of_both(clocks / device.clock_mhz, memory) + kLaunchMicroseconds;
  cost->registers = std::max(cost->registers, registers);
  if (kernel.of_keys) {
    cost->ctas_per_sm = ctas_per_sm;
    cost->waves = ctas / (static_cast<double>(device.sm_count) * ctas_per_sm);
  }
}

}  // namespace

CostEstimate backward_sm80_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const double q_elements = elements_q(problem), kv_elements = elements_kv(problem);
  const double delta_bytes = 4 * q_elements;  // O and dO
  constexpr double kBytesOfSum = 4 + 4 + 2;   // zeros, then read and rounded
  const bool adds = config.dq != DqAccumulation::separate_kernel;
  const bool key_sums = adds_key_sums(config);
  const double sums = (adds ? q_elements : 0) + (key_sums ? 2 * kv_elements : 0);
  const int launches = 1 + adds + key_sums + (adds || key_sums);  // conversions, and the zeros
  CostEstimate cost;
  cost.memory_microseconds = (delta_bytes + kBytesOfSum * sums) / memory_bytes_per_microsecond(device);
  cost.microseconds = cost.memory_microseconds + launches * kLaunchMicroseconds;
  add_kernel(problem, config, device, key_tiles(problem, config, device), &cost);
  if (!adds) add_kernel(problem, config, device, query_tiles(problem, config, device), &cost);
  return cost;
}

}  // namespace attune
