#include "tuner/cli/algorithm_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "generator/error.h"

namespace attune::cli {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ',') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

}  // namespace

void AlgorithmOptions::add(CommandLine& verb, const char* help) {
  verb.add_option("--algorithm", text_, help).group("Config");
}

void AlgorithmOptions::add_to(CommandLine& verb) {
  add(verb, "instead of a config a step by which FlashAttention is derived: standard, online, fa1 or fa2");
}

void AlgorithmOptions::add_several_to(CommandLine& verb) {
  add(verb,
      "instead of a config steps by which FlashAttention is derived, alternately: standard, online, fa1, fa2, several "
      "as "
      "fa1,fa2, or all");
}

std::vector<AttentionAlgorithm> AlgorithmOptions::algorithms(const AttentionProblem& problem,
                                                             const ConfigOptions& config) const {
  if (config.given())
    refuse(fmt::format("--algorithm {} has a config of its own: leave --config or --algorithm out", text_));
  if (problem.pass != Pass::forward)
    refuse(fmt::format("--algorithm {} computes forward: leave it out for a backward problem", text_));
  if (text_ == "all") return {std::begin(kAttentionAlgorithms), std::end(kAttentionAlgorithms)};
  std::vector<AttentionAlgorithm> algorithms;
  for (const std::string& part : split(text_)) {
    const AttentionAlgorithm algorithm = parse_algorithm(part);
    if (std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end())
      refuse(fmt::format("--algorithm {} names {} twice", text_, part));
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

}  // namespace attune::cli
