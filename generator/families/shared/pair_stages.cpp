#include "generator/families/shared/pair_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "generator/generate.h"

namespace attune {

KernelConfig with_pair_stages(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  KernelConfig best = config;
  if (!problem.has_pair_tensors()) best.pair_stages = 0;
  if (!problem.has_pair_tensors() || config.pair_stages > 0) return best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const KernelConfig& choice) {
    if (!infeasibility(problem, choice, device).empty()) return;
    const double time = estimate_cost(problem, choice, device).microseconds;
    if (time >= least) return;
    best = choice;
    least = time;
  };
  consider(config);
  for (int stages = config.stages; stages >= std::max(1, config.stages - 1); --stages) {
    KernelConfig choice = config;
    choice.stages = stages;
    for (const int pair_stages : {1, 2, 3, 4}) {
      choice.pair_stages = pair_stages;
      consider(choice);
    }
  }
  return best;
}

std::vector<int> pair_stage_choices(const AttentionProblem& problem, std::initializer_list<int> stages) {
  std::vector<int> choices = {0};
  if (problem.has_pair_tensors()) choices.insert(choices.end(), stages);
  return choices;
}

void adapt_pair_stages(const Question& question, Adaptation* adaptation) {
  const KernelConfig given = adaptation->config;
  adaptation->config = with_pair_stages(question.problem, question.device, given);
  const KernelConfig& config = adaptation->config;
  if (config == given) return;
  adaptation->changes.push_back(config.pair_stages == 0 ? "without pst, which only a bias or an attention mask has"
                                                        : fmt::format("with st{} pst{}, for tiles of tensors of pairs",
                                                                      config.stages, config.pair_stages));
}

void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.pair_stages == 0 || problem.has_pair_tensors()) return;
  reasons->push_back(fmt::format("pst{}: the problem has neither a bias nor an attention mask; leave the word out",
                                 config.pair_stages));
}

}  // namespace attune
