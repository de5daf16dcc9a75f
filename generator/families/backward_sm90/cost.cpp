#include "generator/families/backward_sm90/cost.h"

#include <algorithm>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/tile_sequence.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/backward_sm90/tickets.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/pair_cost.h"
#include "generator/families/shared/terms.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

// Clocks of one SM for one step (a block of queries) of one CTA, in the unit rates of the device; those of an H200
// stand here. D16 is the head dim rounded up to 16, w the number of softmax warpgroups, n the columns of a product for
// dQ:
//
//   matrix      = 2 q kv (2 D16 + 2 D + columns of products for dQ) / 4096
//   shared      = (2 w (64 + q) D16 + 2 w q D + 2 kv (64 + n) q D / 64 n) / 64    S and dP; dV and dK; dQ
//               + (2 q kv + 4 q D) / 128                                        dS stored; loads written
//   exponential = q kv / 15.4
//   Where the softmax warpgroups compute dQ, a product has 64 of D and m queries: 2 w kv (64 + m) instead of the last
//   term's. Bulk adds take the place of the next term: they pass shared memory twice, 8 q D / 128, half of that in a
//   cluster.
//   adds        = 4 q D / 107, which pass the pipe of shared memory too; in a cluster half of that, and 4 q kv / 128
//                 more of shared memory
//   l2 adds     = 4 q D / 12, half of that in a cluster: what L2 takes while all SMs add
//   issue       = 14.5 q kv / 128 + 320: instructions, which bind where two CTAs of narrow heads share an SM
//   step        = max(1.35 max(matrix, shared + adds) + 1.2 exponential, + 0.12 matrix where nothing overlaps but the
//                     two warpgroups of split-dkdv; l2 adds) + late loads, of which a warpgroup that only loads has
//                     none, + a ticket's clocks, shared by its blocks (how long tiles wait for it: tickets.h)
//   A step of both CTAs of an SM takes at least 2.8 times the largest of matrix, shared + adds and l2 adds, and twice
//   issue.
//
// The units' rates are measured; what holds them together is fitted to 10,000 timed configs of 99 problems, most of
// them short or of odd head dims, on what a fit to the 18 headline shapes had begun. It errs by 7 % in the root mean
// square about a problem's mean, and the first of what was timed is 3 % slower than the fastest in the mean
// (docs/notebook/backward_sm90.md).
namespace attune {
namespace {

constexpr double kOverheadOfStep = 1.35, kExponentialShare = 1.2, kSerialShare = 0.12;
constexpr double kLoneClocks = 215;  // of a step of one softmax warpgroup: no other computes while it waits
// A factor of a step of one warpgroup for dK and dV of the same keys that adds them to sums: ptxas spills 150 to 370
// bytes from this head dim on.
constexpr double kSumsOfWide = 1.12;
constexpr int kLeastHeadDimOfSpills = 168;
constexpr double kDqBySoftmax = 1.04, kDqByLoneSoftmax = 1.3;           // of a step
constexpr double kOrdered = 0.98, kQueued = 1.015, kPersistent = 1.03;  // of a step
// Factors of a step with tiles of pairs, where registers are short (not fitted), and where ptxas spills 180 bytes and
// more besides: 1.8 with a bias, 1.4 with a mask, by two pairs of trials.
constexpr double kShortWithPairs = 1.05, kSpilledWithPairs = 1.5;
// Clocks of a step, where two buffers are filled anew once a block: products in a row wait for them longer. One look at
// a free buffer in half a block is not measured.
constexpr double kLateLoads = 1200, kLateLoadsOfSerial = 290, kPolledShare = 0.5;
// Factors of a step with split-dkdv, from races of six problems of head dim 256: loads that come when buffers are free,
// and what they lose where one stage of dS, or products in a row, keep warpgroups waiting all the same.
constexpr double kPolledOfSplit = 0.87, kPolledOneStage = 1.05, kPolledWithin = 1.08;
// A factor of a step of tiles that drift apart in more bytes of a group of heads than this share of L2. From ten
// problems with groups of four and eight.
constexpr double kDriftOfGroup = 1.25, kDriftShareOfL2 = 1.4;
// Issued for an element of P and dS, and besides for a step, by times of two CTAs on an SM at head dims 16 and 32: 19.5
// an element in all where a step has 8192, 22.8 and 26 where it has 4096.
constexpr double kInstructionsOfElement = 14.5, kIssueClocksOfStep = 320;
constexpr double kElementsShare = 0.9625;    // of the rate of exponentials: elements a clock, with scale and conversion
constexpr double kAddsPerClock = 107;        // bytes of fp32 adds of an SM, while all SMs add
constexpr double kL2AddsPerClock = 11.5;     // as on mma.sync: of an SM, while all SMs add
constexpr double kLoadLatency = 1130;        // of TMA under load
constexpr double kInstructionsOfMask = 4.8;  // of an element
constexpr double kInstructionsOfSlope = 3.5;  // of an element: two products, 1 - tanh², half a conversion
constexpr double kTicketClocks = 700;         // a fence behind adds, then a store of the tile before, seen through L2
// What a tile takes, in its steps: K and V come, dK and dV go, and nothing runs beside the first and the last one. Of
// that a persistent CTA hides a share beside the tile before.
constexpr double kStepsOfTile = 1.9, kHiddenTileShare = 0.3;
// A factor of what a unit takes for both CTAs of an SM: they do not share it without loss, but the issue of
// instructions.
constexpr double kCrowded = 1.4;
constexpr double kShortOfRegisters = 1.35;  // of a step of one of two CTAs of an SM with wider heads
// Clocks of a block of queries that the last tile to add to it converts, and those of an element of it: all its warps
// wait for that.
constexpr double kConvertClocks = 840, kConvertClocksOfElement = 0.24;
constexpr double kLaunchMicroseconds = 3.6;                     // as on mma.sync
constexpr double kMemoryRate = 0.89, kMemoryRateAround = 0.71;  // of the main kernel; of the others, which are short
constexpr double kBytesOfQuery = 12;  // of an element of Q and dO, and of dQ's sum, read and written

// Factors of a step, where LSE and delta are read as early as is usual: from kWideHeadDim on without split-dkdv, and
// elsewhere.
constexpr double kEarlyOfWide = 0.94, kEarlyOfOthers = 0.985;
constexpr int kWideHeadDim = 104;
constexpr double kOneDsStageOfEarly = 1.03;  // with early statistics, of wide heads and of 128 queries

// A factor of a step, where a section fills as much of L2 as it may, and what passes through drives parts of it out:
// under a causal mask 2 to 10 % longer, without one no longer or up to 2 % shorter beyond what tickets wait less.
constexpr double kLargestSection = 1.03;

// With a softcap, from races of three problems on an H100: where products overlap a turn is held for a tanh longer, and
// the buffer of dS is taken by what waits there for dP.
constexpr double kOrderedOfCapped = 1.07, kOneDsStageOfCapped = 1.1;

constexpr double kDkFirst = 0.98;  // of a step, where it is usual; elsewhere it takes up to 5 % longer

double elements(const AttentionProblem& problem, std::int64_t heads, std::int64_t rows) {
  return static_cast<double>(problem.batch * heads) * static_cast<double>(rows) * problem.head_dim;
}

struct Step {
  double matrix = 0, shared = 0, exponential = 0, adds = 0, l2_adds = 0, issue = 0, ticket = 0;

  /// The clocks of the busiest unit with `ctas` on an SM, which share each unit.
  double busiest_unit(double ctas) const {
    return ctas * std::max(kCrowded * std::max({matrix, shared + adds, l2_adds}), issue);
  }

  double clocks(const AttentionProblem& problem, const KernelConfig& config, const BackwardSm90Shape& shape) const {
    const bool serial = config.overlap == Overlap::none;
    double clocks = kOverheadOfStep * std::max(matrix, shared + adds) + kExponentialShare * exponential;
    const bool slopes_shared = shape.slopes == SlopesPlace::shared;
    // With slopes of narrow heads the exponentials of one warpgroup take as long as the products of the other.
    const bool hidden = shape.slopes != SlopesPlace::none && kExponentialShare * exponential > matrix;
    if (serial && !config.split_dkdv && !hidden) clocks += kSerialShare * matrix;
    if (shape.softmax_warpgroups == 1) clocks += kLoneClocks;
    clocks = std::max(clocks, l2_adds);
    if (std::min(config.stages, shape.do_stages) == 2 && !config.split_dkdv && config.dq_by == DqWarpgroups::own) {
      clocks += (serial ? kLateLoadsOfSerial : kLateLoads) * (config.polled_loads ? kPolledShare : 1);
    }
    if (config.split_dkdv && config.polled_loads) {
      clocks *= kPolledOfSplit;
      if (config.ds_stages == 1) clocks *= kPolledOneStage;
      if (!serial) clocks *= kPolledWithin;
    }
    if (config.dk_first && usual_dk_first(problem, config)) clocks *= kDkFirst;
    if (config.warpgroup_order != WarpgroupOrder::free)
      clocks *= slopes_shared && !serial ? kOrderedOfCapped : kOrdered;
    if (slopes_shared && config.ds_stages == 1) clocks *= kOneDsStageOfCapped;
    if (config.overlap == Overlap::queued) clocks *= kQueued;
    if (config.early_statistics > 0 && config.early_statistics == usual_early_statistics(problem, config)) {
      const bool wide = problem.head_dim >= kWideHeadDim && !config.split_dkdv;
      clocks *= wide ? kEarlyOfWide : kEarlyOfOthers;
      if (config.ds_stages == 1 && (wide || config.block_q == kMostBlockQ)) clocks *= kOneDsStageOfEarly;
    }
    if (config.l2_parts == 1) clocks *= kLargestSection;
    if (adds_key_sums(config) && !takes_tickets(config) && !config.split_dkdv &&
        problem.head_dim >= kLeastHeadDimOfSpills)
      clocks *= kSumsOfWide;
    if (config.dq_by == DqWarpgroups::softmax)
      clocks *= shape.softmax_warpgroups == 1 ? kDqByLoneSoftmax : kDqBySoftmax;
    if (config.tile_scheduler != TileScheduler::single) clocks *= kPersistent;
    if (config.pair_stages > 0) {
      if (!shape.whole_apart) clocks *= kShortWithPairs;
      if (config.block_q == kMostBlockQ && config.dq_by != DqWarpgroups::softmax) clocks *= kSpilledWithPairs;
    }
    return clocks + ticket;
  }
};

Step step_of(const AttentionProblem& problem, const KernelConfig& config, const BackwardSm90Shape& shape,
             const DeviceSpec& device, double masked_share) {
  const double q = config.block_q, kv = config.block_kv, d = problem.head_dim, padded = round_up(problem.head_dim, 16);
  const double warpgroups = shape.softmax_warpgroups, bytes_per_clock = device.shared_bytes_per_clock;
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax, bulk = config.dq_adds == DqAdds::bulk;
  const DqProducts dq = dq_products(problem, config);
  const DqShares shares = dq_shares(problem, config);
  const double dq_columns = dq_by_softmax ? kWarpgroupRows * shares.row_tiles : dq.columns * dq.count;
  Step step;
  step.matrix = 2 * q * kv * (2 * padded + 2 * d + dq_columns) / device.wgmma_flops_per_clock;
  double read = 2 * warpgroups * (kWarpgroupRows + q) * padded + 2 * warpgroups * q * d;
  read += dq_by_softmax ? warpgroups * kv * (kWarpgroupRows + shares.queries)
                        : dq.count * kv * (kWarpgroupRows + dq.columns) * q / kWarpgroupRows;
  double exchanged = config.cluster > 1 ? 4 * q * kv : 0;  // dS goes and comes
  if (bulk) exchanged += 8 * q * d / config.cluster;
  step.shared = (2 * read + 2 * q * kv + exchanged + 4 * q * d) / bytes_per_clock;
  step.exponential =
      q * kv *
      (1 / (kElementsShare * device.exp2_per_clock) + masked_share * kInstructionsOfMask / device.alu_per_clock);
  if (problem.softcap != 0) {  // a tanh; its derivative, and P times it
    step.exponential += q * kv * (1 / device.exp2_per_clock + kInstructionsOfSlope / device.alu_per_clock);
    step.issue += q * kv * kInstructionsOfSlope / device.alu_per_clock;
  }
  if (problem.dropout != 0) {
    step.exponential += q * kv * (alu_of_dropout(problem) + kAluOfKeptGradient) / device.alu_per_clock;
    step.issue += q * kv * (alu_of_dropout(problem) + kAluOfKeptGradient) / device.alu_per_clock / 2;
  }
  if (shape.slopes == SlopesPlace::shared) step.shared += 4 * q * kv / bytes_per_clock;
  if (problem.alibi) step.exponential += q * kv * kAluOfSharedAlibi / device.alu_per_clock;
  step.exponential += cost_of_pairs(problem, config, device, q * kv).clocks;
  step.adds = bulk ? 0 : 4 * q * d / kAddsPerClock / config.cluster;
  step.l2_adds = 4 * q * d / kL2AddsPerClock / config.cluster;
  step.issue = q * kv * kInstructionsOfElement / device.alu_per_clock + kIssueClocksOfStep;
  if (config.dq == DqAccumulation::ordered) step.ticket = kTicketClocks / config.ticket_blocks;
  return step;
}

// Whether tiles that differ in length and walk through a group of heads are at once in more of its queries, dO and dQ
// than stays in L2: they drift apart, from head to head.
bool drifts_apart(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                  const TileSequence& sequence) {
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  if (group == 1 || adds_key_sums(config) || !lengthens_tiles(problem.mask)) return false;
  constexpr double kBytesInL2 = 8;  // of an element: Q, dO and dQ's sum
  const auto tiles_at_once = static_cast<double>(
      std::min(sequence.tiles * sequence.heads, std::int64_t{device.sm_count * config.ctas_per_sm / config.cluster}));
  const double heads_at_once = std::max(1.0, tiles_at_once / static_cast<double>(sequence.tiles));
  const double bytes = kBytesInL2 * heads_at_once * static_cast<double>(group * problem.seq_q) * problem.head_dim;
  return bytes > config.query_parts * kDriftShareOfL2 * static_cast<double>(device.l2_bytes);
}

// The clocks of a slot for blocks of queries that the main kernel converts: its share of all, and all of the heads that
// one tile walks through. Tiles of a head go through its blocks together, so that the slowest is the last to add to one
// after the other, and each conversion keeps it the slowest.
double convert_clocks(const AttentionProblem& problem, const KernelConfig& config, double group, double slots) {
  if (!config.fused_convert) return 0;
  const double blocks = static_cast<double>(ceil_div(problem.seq_q, config.block_q));
  const double of_slot = blocks * static_cast<double>(problem.batch * problem.heads_q) / slots,
               of_tile = blocks * group / config.query_parts;
  return (of_slot + of_tile) * (kConvertClocks + kConvertClocksOfElement * config.block_q * problem.head_dim);
}

}  // namespace

bool usual_dk_first(const AttentionProblem& problem, const KernelConfig& config) {
  if (!config.split_dkdv || !config.polled_loads || config.overlap != Overlap::none) return false;
  return problem.head_dim == 160 || problem.head_dim == 192 || problem.head_dim == 256;
}

int most_early_statistics(const KernelConfig& config) {
  constexpr int kOfManyQueries = 9;
  return config.block_q <= 64 ? config.block_q / 8 : kOfManyQueries;
}

int usual_early_statistics(const AttentionProblem& problem, const KernelConfig& config) {
  constexpr int kMostHeadDim = 128, kMostHeadDimOfDelta = 192;
  // What tensors of pairs hold takes the registers: eight spill 50 to 170 bytes; four beside none gained 0.1 %.
  if (problem.has_pair_tensors() && !config.split_dkdv) return problem.head_dim > kMostHeadDim ? 0 : 2;
  if (config.split_dkdv) return config.dk_first && problem.head_dim <= kMostHeadDimOfDelta ? 2 : 0;
  if (problem.head_dim > kMostHeadDim) return 0;
  if (config.dq_by == DqWarpgroups::softmax) return 2;
  // A step that waits for a ticket of its own is no faster.
  if (config.dq == DqAccumulation::ordered && config.ticket_blocks == 1) return 0;
  if (config.block_q <= 64) {
    constexpr int kLeastHeadDimOfAll = 72;
    return problem.head_dim < kLeastHeadDimOfAll ? 4 : most_early_statistics(config);
  }
  constexpr int kMostHeadDimOfNone = 40;
  if (problem.head_dim <= kMostHeadDimOfNone) return 0;
  return problem.dtype == DataType::bf16 ? most_early_statistics(config) : 2;
}

CostEstimate backward_sm90_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm90Shape shape = backward_sm90_shape(problem, config, device);
  const bool apart = adds_key_sums(config);
  const double group = apart ? 1 : static_cast<double>(problem.heads_q / problem.heads_kv);
  TileSequence sequence;
  const int resident = config.block_kv * config.cluster;
  sequence.tiles = ceil_div(problem.seq_kv, resident);
  sequence.parts = config.query_parts;
  sequence.heads = problem.batch * (apart ? problem.heads_q : problem.heads_kv) * sequence.parts;
  sequence.last_first = config.dq == DqAccumulation::ordered;
  sequence.in_rounds = config.tile_scheduler == TileScheduler::static_persistent;
  if (config.tile_order == TileOrder::l2_sections)
    sequence.section_heads = key_tile_section_heads(problem, config, device);

  const MaskGeometry mask(problem);
  const StepCount steps = mask.query_steps(resident, config.block_q);
  const Step step = step_of(problem, config, shape, device, steps.mean > 0 ? steps.masked / steps.mean : 0);
  const double tile_steps = expected_share_of_blocks(config) * steps.mean / config.query_parts;
  const double ctas = static_cast<double>(sequence.tiles * sequence.heads * config.cluster);
  const double together = std::max(1.0, std::min<double>(config.ctas_per_sm, ctas / device.sm_count));
  // Two CTAs of an SM share its units: what one leaves idle the other may take.
  double alone = step.clocks(problem, config, shape);
  if (drifts_apart(problem, config, device, sequence)) alone *= kDriftOfGroup;
  if (config.ctas_per_sm > 1 && problem.head_dim > kMostHeadDimOfTwoCtas) alone *= kShortOfRegisters;
  const double shared = together > 1 ? std::max(alone, step.busiest_unit(together)) : alone;
  const double first_load = std::min(config.stages, shape.do_stages) > 1 ? 0 : kLoadLatency;
  const double last_adds = apart ? 8.0 * config.block_kv * problem.head_dim / kL2AddsPerClock : 0;
  const double slots = device.sm_count * together, tiles_of_slot = std::max(1.0, ctas / slots);
  double around = kStepsOfTile * alone;
  if (config.tile_scheduler != TileScheduler::single) around *= 1 - kHiddenTileShare * (1 - 1 / tiles_of_slot);
  around += last_adds;
  const double uneven =
      uneven_steps(problem, {true, resident, config.block_q}, sequence,
                   static_cast<std::int64_t>(slots / config.cluster), around / (group * (shared + first_load)));
  const double clocks = ctas / slots * (group * tile_steps * (shared + first_load) + around) +
                        group * uneven * (alone + first_load) +
                        ticket_wait_steps(problem, config, sequence, group * tile_steps, slots) * shared +
                        convert_clocks(problem, config, group, slots);

  const double q_elements = elements(problem, problem.heads_q, problem.seq_q),
               kv_elements = elements(problem, problem.heads_kv, problem.seq_kv);
  const double bytes_per_microsecond = device.memory_gbps * 1e3;
  // Zeros, then read and rounded; what the last tile converts is in L2.
  constexpr double kBytesOfSum = 4 + 4 + 2, kBytesOfFusedSum = 4 + 2;
  const double around_bytes = 4 * q_elements + (config.fused_convert ? kBytesOfFusedSum : kBytesOfSum) * q_elements +
                              (apart ? 2 * kBytesOfSum * kv_elements : 0);    // of the other kernels
  const int launches = 3 + (config.fused_convert ? 0 : 1) + (apart ? 1 : 0);  // zeros, delta, key tiles; conversions
  const double main_bytes = kBytesOfQuery * q_elements + (apart ? 20 : 8) * kv_elements;  // of the kernel of key tiles
  const double per_sm = ctas * group * tile_steps / device.sm_count / device.clock_mhz;

  CostEstimate cost;
  cost.matrix_microseconds = step.matrix * per_sm;
  cost.exponential_microseconds = step.exponential * per_sm;
  cost.shared_microseconds = step.shared * per_sm;
  const double around_microseconds = around_bytes / (kMemoryRateAround * bytes_per_microsecond);
  cost.memory_microseconds = step.adds * per_sm + around_microseconds;
  cost.microseconds = std::max(clocks / device.clock_mhz, main_bytes / (kMemoryRate * bytes_per_microsecond)) +
                      around_microseconds + launches * kLaunchMicroseconds +
                      visible_blocks_microseconds(problem, config, device) +
                      copied_pairs_microseconds(problem, config, device);
  cost.registers = shape.launch_registers;
  cost.ctas_per_sm = config.ctas_per_sm;
  cost.waves = ctas / (static_cast<double>(device.sm_count) * config.ctas_per_sm);
  return cost;
}

}  // namespace attune
