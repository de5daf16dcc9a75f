#include "generator/families/forward_sm80/family.h"

#include <limits>

#include "generator/families/family_word.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm80/cost.h"
#include "generator/families/forward_sm80/defaults.h"
#include "generator/families/forward_sm80/plan.h"
#include "generator/families/invariance.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/mma_sync.h"
#include "generator/families/shared/packed_sequences.h"
#include "generator/families/shared/terms.h"

namespace attune {
namespace {

// FlashAttention-2's, for compute capabilities 8.0 and 8.6.
constexpr PublishedTile kPublished[] = {
    {64, 128, 128, 4}, {64, 128, 64, 4},  {96, 128, 64, 4},  {96, 64, 64, 4},  {128, 128, 64, 4},
    {128, 128, 32, 4}, {128, 64, 64, 4},  {160, 128, 32, 4}, {160, 64, 64, 4}, {192, 128, 64, 8},
    {192, 64, 64, 4},  {256, 128, 64, 8}, {256, 64, 64, 4},
};

// On an H200 the fastest of eight configs at D = 112 (causal, S = 4096) spilled 324 bytes.
constexpr int kSpillAllowanceBytes = 512;

bool supports(const Question& question, Reasons* reasons) {
  return supports_mma_sync(question, reasons) && supports_packed_sequences(question.problem, reasons);
}

std::optional<KernelConfig> default_of(const Question& question) {
  return forward_sm80_default(question.problem, question.device);
}

CostEstimate cost_of(const Question& question, const KernelConfig& config) {
  return forward_sm80_cost(question.problem, config, question.device);
}

// Sums of all tiles, which run in any order.
WorkspaceBuffer promoted_sums(const AttentionProblem& problem, const KernelConfig& config) {
  const int queries = config.block_q / heads_of_tile(problem, config);
  return {.buffer = kPromotedSums, .bytes = promoted_sums_bytes(problem, queries), .rows = queries};
}

void describe(const Question& question, const KernelConfig& config, const TemplateSet& templates, KernelTarget target,
              KernelPlan* plan) {
  plan->launches.push_back(forward_sm80_launch(question.problem, config, question.device, templates, target));
  if (adds_parts_of_keys(question.problem, config)) plan->buffers.push_back(promoted_sums(question.problem, config));
  add_combine(question.device, templates, target, 0, false, plan);
  plan->ordered_outputs = {Operand::o, Operand::lse};
}

std::size_t most_workspace(const Question& question) {
  KernelPlan plan;
  if (question.problem.invariant) {
    // The last tile of a head may have few queries, whatever its size.
    constexpr int kMostQueriesOfTile = 256, kAllQueries = std::numeric_limits<int>::max();
    plan.buffers.push_back({.buffer = kPromotedSums, .bytes = promoted_sums_bytes(question.problem, 1)});
    plan.buffers.push_back({.buffer = kPromotedSums,
                            .bytes = promoted_sums_bytes(question.problem, kMostQueriesOfTile),
                            .rows = kAllQueries});
  }
  add_most_partial_results(question.problem, question.device, &plan);
  return plan.workspace_bytes_of(question.problem);
}

}  // namespace

KernelFamily forward_sm80_family() {
  return {.name = "forward_sm80",
          .word = FamilyWord::sm80,
          .pass = Pass::forward,
          .set = kForwardSm80,
          .matrix_instruction = MatrixInstruction::mma_sync,
          .terms = kTerms,
          .supports = supports,
          .check = check_forward_sm80,
          .enumerate = enumerate_forward_sm80,
          .default_config = default_of,
          .adapt = adapt_forward,
          .estimate = cost_of,
          .describe = describe,
          .most_workspace = most_workspace,
          .last_templates_of_0_1 = "a2c9197d29983644",
          .published = kPublished,
          .spill_allowance_bytes = kSpillAllowanceBytes};
}

}  // namespace attune
