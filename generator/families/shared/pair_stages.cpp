#include "generator/families/shared/pair_stages.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <string>

#include "generator/families/shared/copied_pairs.h"
#include "generator/generate.h"

namespace attune {

KernelConfig with_pair_stages(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  KernelConfig best = config;
  if (!problem.has_pair_tensors()) best.pair_stages = 0;
  best.copied_pairs = false;
  if (!problem.has_pair_tensors()) return best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const KernelConfig& choice) {
    if (!infeasibility(problem, choice, device).empty()) return;
    const double time = estimate_cost(problem, choice, device).microseconds;
    if (time >= least) return;
    best = choice;
    least = time;
  };
  const auto consider_copies = [&](KernelConfig choice) {
    for (const bool copied : copied_pairs_choices(problem, choice.pair_stages)) {
      choice.copied_pairs = copied;
      consider(choice);
    }
  };
  consider_copies(config);
  if (config.pair_stages > 0) return best;
  // Stages of other tiles may have to give way, one of each.
  std::vector<KernelConfig> others = {config};
  const auto add_with_fewer = [&](int KernelConfig::*stages) {
    for (std::size_t i = 0, count = others.size(); i < count; ++i) {
      if (others[i].*stages == 1) continue;
      KernelConfig fewer = others[i];
      --(fewer.*stages);
      others.push_back(fewer);
    }
  };
  add_with_fewer(&KernelConfig::stages);
  add_with_fewer(problem.pass == Pass::forward ? &KernelConfig::q_stages : &KernelConfig::ds_stages);
  for (KernelConfig choice : others) {
    for (const int pair_stages : {1, 2, 3, 4}) {
      choice.pair_stages = pair_stages;
      consider_copies(choice);
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
  if (config.pair_stages == given.pair_stages) {
    adaptation->changes.push_back(config.copied_pairs
                                      ? "with copied-pairs, for rows of pairs that 16 bytes do not divide"
                                      : "without copied-pairs, for rows of pairs that need none");
    return;
  }
  if (config.pair_stages == 0) {
    adaptation->changes.push_back("without pst, which only a bias or an attention mask has");
    return;
  }
  const std::string queries = config.q_stages == given.q_stages ? "" : fmt::format(" qst{}", config.q_stages);
  const std::string gradients = config.ds_stages == given.ds_stages ? "" : fmt::format(" dsst{}", config.ds_stages);
  adaptation->changes.push_back(fmt::format("with st{}{} pst{}{}{}, for tiles of tensors of pairs", config.stages,
                                            queries, config.pair_stages, gradients,
                                            config.copied_pairs ? " copied-pairs" : ""));
}

void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.pair_stages == 0 || problem.has_pair_tensors()) return;
  reasons->push_back(fmt::format("pst{}: the problem has neither a bias nor an attention mask; leave the word out",
                                 config.pair_stages));
}

}  // namespace attune
