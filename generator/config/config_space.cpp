#include "generator/config/config_space.h"

#include <algorithm>

#include "generator/families/invariance.h"
#include "generator/families/kernel_family.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device, SpaceExtent extent) {
  std::vector<KernelConfig> configs;
  const Question question{problem, device};
  const AttentionProblem rated = with_equal_lengths(problem);
  for (const KernelFamily& family : kernel_families()) {
    Reasons reasons;
    const bool may_serve = !problem.invariant || &family == invariant_family(question);
    if (family.pass == problem.pass && may_serve && serves(family, question, &reasons))
      family.enumerate({rated, device}, extent, &configs);
  }
  return configs;
}

}  // namespace

std::string_view to_string(SpaceExtent extent) { return extent == SpaceExtent::whole ? "whole" : "reduced"; }

std::optional<SpaceExtent> parse_space_extent(std::string_view text) {
  for (const SpaceExtent extent : {SpaceExtent::whole, SpaceExtent::reduced}) {
    if (text == to_string(extent)) return extent;
  }
  return std::nullopt;
}

std::vector<Candidate> config_space(const AttentionProblem& problem, const DeviceSpec& device, SpaceExtent extent) {
  validate(problem);
  struct Named {
    Candidate candidate;
    std::string text;  // made where it decides
  };
  std::vector<KernelConfig> configs = all_configs(problem, device, extent);
  const KernelConfig default_choice = default_config(problem, device);
  if (std::find(configs.begin(), configs.end(), default_choice) == configs.end()) configs.push_back(default_choice);
  std::vector<Named> named;
  for (const KernelConfig& config : configs) {
    Named entry{{config, infeasibility(problem, config, device), {}}, {}};
    if (entry.candidate.feasible()) entry.candidate.cost = estimate_cost(problem, config, device);
    named.push_back(std::move(entry));
  }
  const auto text_of = [](Named& entry) -> const std::string& {
    if (entry.text.empty()) entry.text = canonical_text(entry.candidate.config);
    return entry.text;
  };
  std::vector<Named*> order;
  for (Named& entry : named) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [&](Named* a, Named* b) {
    if (a->candidate.feasible() != b->candidate.feasible()) return a->candidate.feasible();
    const double a_cost = a->candidate.cost.microseconds, b_cost = b->candidate.cost.microseconds;
    return a_cost != b_cost ? a_cost < b_cost : text_of(*a) < text_of(*b);
  });
  std::vector<Candidate> candidates;
  candidates.reserve(named.size());
  for (Named* entry : order) candidates.push_back(std::move(entry->candidate));
  return candidates;
}

}  // namespace attune
