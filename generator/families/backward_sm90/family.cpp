#include "generator/families/backward_sm90/family.h"

#include <fmt/format.h>

#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_sm90/cost.h"
#include "generator/families/backward_sm90/defaults.h"
#include "generator/families/backward_sm90/fused_dbias.h"
#include "generator/families/backward_sm90/plan.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/family_word.h"
#include "generator/families/shared/packed_sequences.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/terms.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"

namespace attune {
namespace {

// FlashAttention-3's, as far as they are multiples of 64.
constexpr PublishedTile kPublished[] = {{64, 128, 128, 0}, {96, 64, 128, 0}, {128, 64, 128, 0}};

// What kernels of wide heads spill lies outside the loop over blocks, but for a number or two.
constexpr int kSpillAllowanceBytes = 256;

bool supports(const Question& question, Reasons* reasons) {
  return supports_wgmma(question, reasons) && supports_packed_sequences(question.problem, reasons);
}

std::optional<KernelConfig> default_of(const Question& question) {
  return backward_sm90_default(question.problem, question.device);
}

// Where tensors of pairs leave no registers for as many as the config was made for.
void adapt_early_statistics(const AttentionProblem& problem, Adaptation* adaptation) {
  KernelConfig& config = adaptation->config;
  const int usual = usual_early_statistics(problem, config);
  if (!problem.has_pair_tensors() || config.early_statistics <= usual) return;
  adaptation->changes.push_back(
      fmt::format("with early{} instead of early{}, for tensors of pairs", usual, config.early_statistics));
  config.early_statistics = usual;
}

Adaptation adapt(const Question& question, const KernelConfig& config) {
  Adaptation adaptation = adapt_backward(question, config);
  if (config.ctas_per_sm > 1 && question.problem.head_dim > kMostHeadDimOfTwoCtas) {
    adaptation.config.ctas_per_sm = 1;
    adaptation.changes.push_back(
        fmt::format("without cta{}, which spills for head dims above {}", config.ctas_per_sm, kMostHeadDimOfTwoCtas));
  }
  if (question.problem.packed && adaptation.config.fused_convert) {
    adaptation.config.fused_convert = false;
    adaptation.changes.push_back("without fused-convert, which packed sequences do not have");
  }
  adapt_tile_scheduler(question.problem, &adaptation);
  adapt_visible_blocks(question, &adaptation);
  adapt_fused_dbias(question, &adaptation);
  adapt_pair_stages(question, &adaptation);
  adapt_early_statistics(question.problem, &adaptation);
  return adaptation;
}

CostEstimate cost_of(const Question& question, const KernelConfig& config) {
  return backward_sm90_cost(question.problem, config, question.device);
}

void describe(const Question& question, const KernelConfig& config, const TemplateSet& templates, KernelTarget target,
              KernelPlan* plan) {
  describe_backward_sm90(question.problem, config, question.device, templates, target, plan);
}

std::size_t most_workspace(const Question& question) {
  return backward_sm90_most_workspace_bytes(question.problem, question.device);
}

}  // namespace

KernelFamily backward_sm90_family() {
  return {.name = "backward_sm90",
          .word = FamilyWord::sm90,
          .pass = Pass::backward,
          .set = kBackwardSm90,
          .matrix_instruction = MatrixInstruction::wgmma,
          .terms = kTerms,
          .supports = supports,
          .check = check_backward_sm90,
          .enumerate = enumerate_backward_sm90,
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
