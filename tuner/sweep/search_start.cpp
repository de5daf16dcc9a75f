#include "tuner/sweep/search_start.h"

#include <algorithm>

#include "generator/generate.h"
#include "tuner/search/searcher.h"

namespace attune {
namespace {

constexpr int kNeighbours = 3;  // whose winners are seeds

}  // namespace

SearchStart search_start(const AttentionProblem& problem, const std::vector<Candidate>& space,
                         const KernelConfig& default_config, const DeviceSpec& spec, const std::string& device,
                         int sm_count, const TuningDatabase& database, const DatabaseLayers& presets) {
  SearchStart start;
  start.seeds = {default_config};
  const auto add = [&](const KernelConfig& config) {
    if (const auto near = adapted(problem, config, spec)) start.seeds.push_back(near->config);
  };
  std::vector<const TuningDatabase*> known = {&database};
  for (const auto& preset : presets) known.push_back(preset.get());
  for (const TuningDatabase* from : known) {
    const auto best = from->best(problem, device, sm_count);
    if (!best) continue;
    add(best->config);
    const auto is_it = [&](const Candidate& candidate) { return candidate.config == best->config; };
    if (from == &database && !best->race.empty() && std::any_of(space.begin(), space.end(), is_it))
      start.elected = best->config;
  }
  for (const TuningDatabase* from : known) {
    for (const KernelConfig& config : from->winners_of_neighbours(problem, device, sm_count, kNeighbours)) add(config);
  }
  for (const KernelConfig& config : published_seeds(problem, space)) start.seeds.push_back(config);
  return start;
}

}  // namespace attune
