#include "tests/kernels/case_table.h"

#include <fmt/format.h>

#include <iterator>

#include "generator/families/family_word.h"
#include "generator/generate.h"

namespace attune::tests {
namespace {

constexpr int kTries = 4000;  // few rows have little work and large tiles
constexpr std::int64_t kLengths[] = {1, 3, 17, 127, 129, 1000};
constexpr int kHeadDims[] = {8, 16, 40, 64, 72, 128, 256};
constexpr int kGroups[] = {1, 3, 8};  // Hq / Hkv
struct Rows {
  int block_q, warps;
};
constexpr Rows kRows[] = {{16, 1}, {64, 4}, {128, 8}, {64, 2}, {128, 4}, {192, 4}, {96, 2}, {256, 4}};
constexpr int kBlockKv[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256};
constexpr int kConsumers[] = {1, 2, 3};  // warpgroups of 64 rows, sm90
constexpr int kRescaleThresholds[] = {0, 8};
constexpr TileOrder kForwardOrders[] = {TileOrder::head_major, TileOrder::head_major_reversed, TileOrder::tile_major,
                                        TileOrder::tile_major_reversed, TileOrder::l2_sections_reversed};
constexpr int kEmulatedExponentials[] = {0, 2, 8};
constexpr int kPromotionBlocks[] = {0, 1, 3};
constexpr int kKeyParts[] = {1, 3, kFillParts};
constexpr Placement kPlacements[] = {Placement::packed, Placement::padded, Placement::reversed};
constexpr int kFewSequences = 5, kManySequences = 37;  // that are packed

enum Factor {
  kDtype,
  kHeadDim,
  kSeqQ,
  kSeqKv,
  kGroup,
  kHeadsKv,
  kBatch,
  kMask,
  kSoftcap,
  kAlibi,
  kBias,
  kAttentionMask,
  kSink,
  kDropout,
  kLengthsOf,
  kAlignment,
  kLayout,
  kPlacement,
  kLse,
  kRowsFactor,
  kBlockKvFactor,
  kStages,
  kQueryPlace,
  kTileOrder,
  kThreshold,
  kCtas,
  kKeyPartsFactor,
  kPromotion,
  kPackedHeads,
  kQStages,  // from here on sm90's
  kWarpgroupOrderFactor,
  kOverlap,
  kSchedulerFactor,
  kVStages,
  kCluster,
  kProducerRegisters,
  kExponentials,
  kProbabilityPlace,
  kKeyWalk,
  kPairStages,
  kVisibleBlocks,
  kFactors
};

std::vector<int> factor_sizes(FamilyWord family) {
  std::vector<int> sizes(kFactors, 2);
  sizes[kHeadDim] = std::size(kHeadDims);
  sizes[kSeqQ] = sizes[kSeqKv] = std::size(kLengths);
  sizes[kGroup] = std::size(kGroups);
  sizes[kMask] = kMaskChoices;
  sizes[kSoftcap] = std::size(kSoftcaps);
  sizes[kDropout] = std::size(kDropouts);
  sizes[kBias] = std::size(kBiases);
  sizes[kAttentionMask] = std::size(kAttentionMasks);
  sizes[kLengthsOf] = kLengthChoices;
  sizes[kPlacement] = 3;
  sizes[kRowsFactor] = std::size(kRows);
  sizes[kBlockKvFactor] = std::size(kBlockKv);
  sizes[kStages] = 4;
  sizes[kTileOrder] = std::size(kForwardOrders);
  sizes[kThreshold] = std::size(kRescaleThresholds);
  sizes[kKeyPartsFactor] = std::size(kKeyParts);
  sizes[kPromotion] = family == FamilyWord::sm80 ? 2 : std::size(kPromotionBlocks);
  if (family == FamilyWord::sm80) {
    for (int factor = kQStages; factor < kFactors; ++factor) sizes[static_cast<std::size_t>(factor)] = 1;
  } else {
    sizes[kAlignment] = 1;  // others are not for TMA, nor are rows from the last to the first
    sizes[kPlacement] = 2;
    sizes[kRowsFactor] = std::size(kConsumers);
    sizes[kWarpgroupOrderFactor] = sizes[kOverlap] = sizes[kSchedulerFactor] = sizes[kVStages] = sizes[kPairStages] = 3;
    sizes[kExponentials] = std::size(kEmulatedExponentials);
  }
  return sizes;
}

ForwardCase case_of(const FactorChoice& row, FamilyWord family) {
  ForwardCase test;
  test.placement = kPlacements[row[kPlacement]];
  test.problem = problem_of({.fp16 = row[kDtype] == 1,
                             .batch = 1 + row[kBatch],
                             .heads_kv = 1 + row[kHeadsKv],
                             .group = kGroups[row[kGroup]],
                             .seq_q = kLengths[row[kSeqQ]],
                             .seq_kv = kLengths[row[kSeqKv]],
                             .head_dim = kHeadDims[row[kHeadDim]],
                             .mask = static_cast<MaskChoice>(row[kMask]),
                             .unaligned = row[kAlignment] == 1,
                             .bhsd = row[kLayout] == 1,
                             .softcap = row[kSoftcap],
                             .dropout = row[kDropout],
                             .alibi = row[kAlibi] == 1,
                             .sink = row[kSink] == 1,
                             .bias = row[kBias],
                             .attention_mask = row[kAttentionMask],
                             .lengths = static_cast<LengthChoice>(row[kLengthsOf]),
                             .placement = test.placement});
  test.with_lse = row[kLse] == 0;
  if (test.placement == Placement::padded) test.problem.softmax_scale = 0.3f;
  KernelConfig& config = test.config;
  config = default_fields(family);
  if (family == FamilyWord::sm80) {
    config.block_q = kRows[row[kRowsFactor]].block_q;
    config.warps = kRows[row[kRowsFactor]].warps;
  } else {
    config.block_q = 64 * kConsumers[row[kRowsFactor]];
    config.q_stages = 1 + row[kQStages];
    config.warpgroup_order = static_cast<WarpgroupOrder>(row[kWarpgroupOrderFactor]);
    config.overlap = static_cast<Overlap>(row[kOverlap]);
    config.tile_scheduler = static_cast<TileScheduler>(row[kSchedulerFactor]);
    config.cluster = 1 + row[kCluster];
    config.producer_registers = 40 * row[kProducerRegisters];
    config.p_in_shared = row[kProbabilityPlace] == 1;
    config.emulated_exponentials = kEmulatedExponentials[row[kExponentials]];
    config.ascending_keys = row[kKeyWalk] == 1;
    config.pair_stages = row[kPairStages];
    config.visible_blocks = row[kVisibleBlocks] == 1;
  }
  config.block_kv = kBlockKv[row[kBlockKvFactor]];
  config.stages = 1 + row[kStages];
  if (row[kVStages] != 0)
    config.v_stages = 1 + (row[kStages] + row[kVStages]) % 4;  // one more or two, in a ring of 1 to 4
  config.q_in_registers = row[kQueryPlace] == 0;
  config.tile_order = kForwardOrders[row[kTileOrder]];
  config.rescale_threshold = kRescaleThresholds[row[kThreshold]];
  config.ctas_per_sm = 1 + row[kCtas];
  config.key_parts = kKeyParts[row[kKeyPartsFactor]];
  config.promotion_blocks = kPromotionBlocks[row[kPromotion]];
  config.pack_gqa = row[kPackedHeads] == 1;
  return test;
}

double work_of(const ForwardCase& test) {
  const auto padded = [](std::int64_t length, int block) {
    return static_cast<double>((length + block - 1) / block * block);
  };
  // Each packed sequence has a tile of its own.
  const double sequences = static_cast<double>(test.problem.packed ? test.problem.batch - 1 : 0);
  return (padded(test.problem.seq_q, test.config.block_q) + sequences * test.config.block_q) *
         padded(test.problem.seq_kv, test.config.block_kv) * test.problem.head_dim *
         static_cast<double>(test.problem.row_batch() * test.problem.heads_q);
}

}  // namespace

AttentionProblem problem_of(const ProblemChoice& choice) {
  AttentionProblem problem = make_problem(choice.fp16 ? DataType::fp16 : DataType::bf16, choice.batch,
                                          choice.heads_kv * choice.group, choice.seq_q, choice.head_dim);
  problem.heads_kv = choice.heads_kv;
  problem.seq_kv = choice.seq_kv;
  problem.alignment = choice.unaligned || choice.placement == Placement::reversed ? 2 : 16;
  problem.layout = choice.bhsd ? Layout::bhsd : Layout::bshd;
  problem.softcap = kSoftcaps[choice.softcap];
  problem.dropout = kDropouts[choice.dropout];
  problem.alibi = choice.alibi;
  const AttentionProblem pairs =
      parse_problem(fmt::format("forward{}{}", kBiases[choice.bias], kAttentionMasks[choice.attention_mask]));
  problem.bias = pairs.bias;
  problem.bias_fp32 = pairs.bias_fp32;
  problem.attention_mask = pairs.attention_mask;
  problem.bias_gradient = choice.bias_gradient && problem.bias != PairTensor::none;
  problem.sink = choice.sink;
  problem.packed = choice.lengths >= LengthChoice::packed;
  if (problem.packed) problem.batch = choice.batch == 1 ? kFewSequences : kManySequences;
  // Some of many sequences are longer than what tensors of pairs have elements for.
  if (problem.has_longest_sequence() && problem.batch == kManySequences) {
    problem.max_seq_q = problem.seq_q / 8 + 1;
    problem.max_seq_kv = problem.seq_kv / 5 + 1;
  }
  problem.lengths = choice.lengths == LengthChoice::whole ? Lengths::whole
                    : choice.lengths == LengthChoice::used || choice.lengths == LengthChoice::packed
                        ? Lengths::used
                        : Lengths::used_top_left;
  const std::int64_t aligned = problem.seq_kv - problem.seq_q;
  switch (choice.mask) {
    case MaskChoice::none:
      break;
    case MaskChoice::bottom_right:
    case MaskChoice::top_left:
    case MaskChoice::below:
      problem.mask = MaskKind::causal;
      problem.mask_offset = choice.mask == MaskChoice::bottom_right ? aligned
                            : choice.mask == MaskChoice::top_left   ? 0
                                                                    : -(problem.seq_q + 1) / 2;
      break;
    case MaskChoice::window:
      hide_outside(aligned - problem.seq_kv / 3, aligned + problem.seq_kv / 5, &problem);
      break;
    case MaskChoice::window_causal:
      hide_outside(aligned - problem.seq_kv / 4, aligned, &problem);
      break;
    case MaskChoice::window_narrow:
      hide_outside(aligned + 3, kOpenDiagonal, &problem);
      break;
  }
  return problem;
}

bool is_served(const AttentionProblem& problem) {
  return !problem.invariant || (!problem.packed && problem.dropout == 0);
}

CaseTable pairwise_cases(const DeviceSpec& device, FamilyWord family, double max_work, std::uint32_t seed) {
  const auto allowed = [&](const FactorChoice& row) {
    const ForwardCase test = case_of(row, family);
    return is_served(test.problem) && work_of(test) <= max_work &&
           infeasibility(test.problem, test.config, device).empty();
  };
  const PairwiseTable table = pairwise(factor_sizes(family), allowed, seed, kTries);
  CaseTable cases;
  cases.impossible = table.impossible;
  for (const FactorChoice& row : table.rows) {
    cases.cases.push_back(case_of(row, family));
    cases.cases.back().seed = static_cast<std::uint32_t>(cases.cases.size());
  }
  return cases;
}

}  // namespace attune::tests
