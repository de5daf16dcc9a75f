#include "generator/families/backward_sm80/family.h"

#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_sm80/cost.h"
#include "generator/families/backward_sm80/defaults.h"
#include "generator/families/backward_sm80/plan.h"
#include "generator/families/family_word.h"
#include "generator/families/shared/mma_sync.h"
#include "generator/families/shared/packed_sequences.h"
#include "generator/families/shared/terms.h"

namespace attune {
namespace {

// FlashAttention-2's.
constexpr PublishedTile kPublished[] = {{64, 128, 128, 8}, {128, 64, 128, 8}, {256, 64, 64, 8}};

// As forward_sm80's; kernels that spill a few hundred bytes were timed to be 3 to 11 % faster at some head dims.
constexpr int kSpillAllowanceBytes = 512;

bool supports(const Question& question, Reasons* reasons) {
  return supports_mma_sync(question, reasons) && supports_packed_sequences(question.problem, reasons);
}

std::optional<KernelConfig> default_of(const Question& question) {
  return backward_sm80_default(question.problem, question.device);
}

CostEstimate cost_of(const Question& question, const KernelConfig& config) {
  return backward_sm80_cost(question.problem, config, question.device);
}

void describe(const Question& question, const KernelConfig& config, const TemplateSet& templates, KernelTarget target,
              KernelPlan* plan) {
  describe_backward_sm80(question.problem, config, question.device, templates, target, plan);
}

std::size_t most_workspace(const Question& question) {
  return backward_sm80_most_workspace_bytes(question.problem, question.device);
}

}  // namespace

KernelFamily backward_sm80_family() {
  return {.name = "backward_sm80",
          .word = FamilyWord::sm80,
          .pass = Pass::backward,
          .set = kBackwardSm80,
          .matrix_instruction = MatrixInstruction::mma_sync,
          .terms = kTerms,
          .supports = supports,
          .check = check_backward_sm80,
          .enumerate = enumerate_backward_sm80,
          .default_config = default_of,
          .adapt = adapt_backward,
          .estimate = cost_of,
          .describe = describe,
          .most_workspace = most_workspace,
          .last_templates_of_0_1 = "504ccfd6950b1013",
          .published = kPublished,
          .spill_allowance_bytes = kSpillAllowanceBytes};
}

}  // namespace attune
