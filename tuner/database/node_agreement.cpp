#include "tuner/database/node_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace attune {
namespace {

// What most of `values` are, of several as many the least; and how many those are.
template <typename T>
std::pair<T, std::size_t> most_common(const std::vector<T>& values) {
  std::map<T, std::size_t> counts;
  for (const T& value : values) ++counts[value];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return *most;
}

// How a GPU is set otherwise than most of the others.
std::string different_settings(const NodeGpu& own, const std::vector<NodeGpu>& others) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* name, const char* unit, auto member) {
    std::vector<std::decay_t<decltype(own.*member)>> values;
    for (const NodeGpu& other : others)
      if (other.*member != std::decay_t<decltype(own.*member)>{}) values.push_back(other.*member);
    if (values.empty() || own.*member == std::decay_t<decltype(own.*member)>{}) return;
    const auto [usual, count] = most_common(values);
    if (own.*member == usual) return;
    differences.push_back(
        fmt::format("{} {}{}, {} of {} others {}{}", name, own.*member, unit, count, others.size(), usual, unit));
  };
  compare("driver", "", &NodeGpu::driver_build);
  compare("power limit", " W", &NodeGpu::power_limit_w);
  compare("SM clock", " MHz", &NodeGpu::sm_clock_limit_mhz);
  compare("memory clock", " MHz", &NodeGpu::memory_clock_mhz);
  return fmt::format("{}", fmt::join(differences, "; "));
}

}  // namespace

void NodeAgreement::add(const Measurement& row) {
  if (row.status != MeasurementStatus::ok || row.rigor == Rigor::estimate || row.median_us <= 0) return;
  const std::string& gpu = row.node.gpu_uuid.empty() ? row.node.host : row.node.gpu_uuid;
  if (gpu.empty()) return;
  const Model model(row.device, row.sm_count);
  const auto [known, added] = gpus_.try_emplace(gpu, Gpu{model, row.node, row.created_at});
  if (!added && row.created_at > known->second.created_at) known->second = {model, row.node, row.created_at};
  questions_[{canonical_text(row.problem), canonical_text(row.config), row.source_hash, row.compiler, model,
              !row.race.empty()}]
      .times_us[gpu]
      .push_back(row.median_us);
}

std::vector<DeviatingNode> NodeAgreement::deviating() const {
  std::map<std::string, std::vector<double>> ratios;
  std::map<std::string, std::set<std::string>> compared_with;
  for (const auto& [question, answers] : questions_) {
    if (answers.times_us.size() < 2) continue;
    std::map<std::string, double> answer_of;
    std::vector<double> all;
    for (const auto& [gpu, times] : answers.times_us) all.push_back(answer_of[gpu] = quantile(times, 0.5));
    const auto reference = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
    std::nth_element(all.begin(), reference, all.end());
    for (const auto& [gpu, answer] : answer_of) {
      ratios[gpu].push_back(answer / *reference);
      for (const auto& [other, unused] : answer_of)
        if (other != gpu) compared_with[gpu].insert(other);
    }
  }
  std::vector<DeviatingNode> deviating;
  for (const auto& [gpu, of_gpu] : ratios) {
    const double ratio = quantile(of_gpu, 0.5);
    if (of_gpu.size() < kLeastCompared || (ratio <= kMostRatio && ratio >= 1 / kMostRatio)) continue;
    std::vector<NodeGpu> others;
    for (const std::string& other : compared_with[gpu]) others.push_back(gpus_.at(other).node);
    const Gpu& own = gpus_.at(gpu);
    deviating.push_back(
        {own.node, own.model.first, ratio, of_gpu.size(), others.size(), different_settings(own.node, others)});
  }
  std::stable_sort(deviating.begin(), deviating.end(), [](const DeviatingNode& a, const DeviatingNode& b) {
    return std::abs(std::log(a.time_ratio)) > std::abs(std::log(b.time_ratio));
  });
  return deviating;
}

}  // namespace attune
