#include "generator/families/forward_sm90/family.h"

#include "generator/families/family_word.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/cost.h"
#include "generator/families/forward_sm90/defaults.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/packed_sequences.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/terms.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"

namespace attune {
namespace {

// FlashAttention-3's.
constexpr PublishedTile kPublished[] = {
    {64, 192, 128, 0}, {96, 192, 144, 0}, {128, 128, 128, 0}, {128, 128, 176, 0}, {192, 128, 112, 0}, {256, 128, 80, 0},
};

// The fastest kernel of 18 problems spilled up to 232 bytes, all outside the loop over keys.
constexpr int kSpillAllowanceBytes = 256;

bool supports(const Question& question, Reasons* reasons) {
  return supports_wgmma(question, reasons) && supports_packed_sequences(question.problem, reasons);
}

std::optional<KernelConfig> default_of(const Question& question) {
  return forward_sm90_default(question.problem, question.device);
}

Adaptation adapt(const Question& question, const KernelConfig& config) {
  Adaptation adaptation = adapt_forward(question, config);
  adapt_tile_scheduler(question.problem, &adaptation);
  adapt_visible_blocks(question, &adaptation);
  adapt_pair_stages(question, &adaptation);
  return adaptation;
}

CostEstimate cost_of(const Question& question, const KernelConfig& config) {
  return forward_sm90_cost(question.problem, config, question.device);
}

void describe(const Question& question, const KernelConfig& config, const TemplateSet& templates, KernelTarget target,
              KernelPlan* plan) {
  add_visible_blocks(question.device, templates, target, BlockWalk::keys, plan);
  plan->launches.push_back(forward_sm90_launch(question.problem, config, question.device, templates, target));
  describe_forward_sm90_workspace(config, question.device, plan);
  add_combine(question.device, templates, target, forward_sm90_headroom(question.problem, config),
              !config.ascending_keys, plan);
  add_copied_pairs(question.device, templates, target, plan);
  plan->ordered_outputs = {Operand::o, Operand::lse};
}

std::size_t most_workspace(const Question& question) {
  return forward_sm90_most_workspace_bytes(question.problem, question.device);
}

}  // namespace

KernelFamily forward_sm90_family() {
  return {.name = "forward_sm90",
          .word = FamilyWord::sm90,
          .pass = Pass::forward,
          .set = kForwardSm90,
          .matrix_instruction = MatrixInstruction::wgmma,
          .terms = kTerms,
          .supports = supports,
          .check = check_forward_sm90,
          .enumerate = enumerate_forward_sm90,
          .default_config = default_of,
          .adapt = adapt,
          .estimate = cost_of,
          .describe = describe,
          .most_workspace = most_workspace,
          .last_templates_of_0_1 = {},
          .published = kPublished,
          .spill_allowance_bytes = kSpillAllowanceBytes};
}

}  // namespace attune
