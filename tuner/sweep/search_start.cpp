#include "tuner/sweep/search_start.h"

#include <algorithm>

#include "tuner/search/searcher.h"

namespace attune {
namespace {

constexpr int kNeighbours = 3;  // whose winners are seeds

// A row's config with the threshold that the space offers in place of its own: an earlier version may have offered
// another one, and where one wins so does the other.
KernelConfig as_offered(const KernelConfig& config, const std::vector<Candidate>& space) {
  for (const Candidate& candidate : space) {
    KernelConfig offered = config;
    if (config.rescale_threshold > 0 && candidate.config.rescale_threshold > 0)
      offered.rescale_threshold = candidate.config.rescale_threshold;
    if (candidate.config == offered) return offered;
  }
  return config;
}

}  // namespace

SearchStart search_start(const AttentionProblem& problem, const std::vector<Candidate>& space,
                         const KernelConfig& default_config, const std::string& device, int sm_count,
                         const TuningDatabase& database, const TuningDatabase* presets) {
  SearchStart start;
  start.seeds = {default_config};
  const TuningDatabase* const known[] = {&database, presets};
  for (const TuningDatabase* from : known) {
    if (!from) continue;
    const auto best = from->best(problem, device, sm_count);
    if (!best) continue;
    start.seeds.push_back(as_offered(best->config, space));
    const auto is_it = [&](const Candidate& candidate) { return candidate.config == best->config; };
    if (from == &database && !best->race.empty() && std::any_of(space.begin(), space.end(), is_it))
      start.elected = best->config;
  }
  for (const TuningDatabase* from : known) {
    if (!from) continue;
    for (const KernelConfig& config : from->winners_of_neighbours(problem, device, sm_count, kNeighbours))
      start.seeds.push_back(as_offered(config, space));
  }
  for (const KernelConfig& config : published_seeds(problem, space)) start.seeds.push_back(config);
  return start;
}

}  // namespace attune
