#include "generator/families/shared/pair_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

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
  // Stages of other tiles may have to give way.
  for (int q_stages = config.q_stages; q_stages >= std::max(1, config.q_stages - 1); --q_stages) {
    for (int stages = config.stages; stages >= std::max(1, config.stages - 1); --stages) {
      for (const int pair_stages : {1, 2, 3, 4}) {
        KernelConfig choice = config;
        choice.q_stages = q_stages;
        choice.stages = stages;
        choice.pair_stages = pair_stages;
        consider(choice);
      }
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
  if (config.pair_stages == 0) {
    adaptation->changes.push_back("without pst, which only a bias or an attention mask has");
    return;
  }
  const std::string queries = config.q_stages == given.q_stages ? "" : fmt::format(" qst{}", config.q_stages);
  adaptation->changes.push_back(
      fmt::format("with st{}{} pst{}, for tiles of tensors of pairs", config.stages, queries, config.pair_stages));
}

void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.pair_stages == 0 || problem.has_pair_tensors()) return;
  reasons->push_back(fmt::format("pst{}: the problem has neither a bias nor an attention mask; leave the word out",
                                 config.pair_stages));
}

}  // namespace attune
