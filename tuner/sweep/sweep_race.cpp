#include "tuner/sweep/sweep_race.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace attune {
namespace {

// Times of one batch, told to the race; why there are none, else empty.
std::string run_batch(FinalRace& race, const FinalRace::Batch& batch, const std::vector<Measurement>& trials,
                      SweepLane& lane, std::string& protocol) {
  std::vector<KernelConfig> configs;
  for (const std::size_t i : batch.entrants) configs.push_back(trials[i].config);
  RaceOptions options;
  options.seconds = batch.seconds;
  options.min_rounds = batch.min_rounds;
  options.wide = races_wide(trials[batch.entrants.front()].problem);
  const RaceTimes times = lane.race(configs, options);
  if (!times.complaint.empty()) return times.complaint;
  protocol = times.protocol;
  race.tell(times.samples_us, times.wide_samples_us, times.clocks_mhz);
  return {};
}

}  // namespace

SweepRace run_race(FinalRace& race, const std::vector<Measurement>& trials, Rigor rigor, SweepLane& lane,
                   const std::function<bool()>& stop_asked) {
  SweepRace result;
  const std::string begun = utc_now();
  std::string protocol;
  while (const auto batch = race.next()) {
    const std::string trouble = run_batch(race, *batch, trials, lane, protocol);
    if (trouble.empty() || (!stop_asked() && race.narrow())) continue;
    result.failure = stop_asked() ? "interrupted" : trouble;
    return result;
  }
  for (FinalRace::Finalist& finalist : race.standings()) {
    Measurement& row = result.rows.emplace_back(trials[finalist.trial]);
    row.race = begun;
    row.place = static_cast<int>(result.rows.size());
    row.rigor = rigor;
    row.samples_us = std::move(finalist.samples_us);
    row.wide_samples_us = std::move(finalist.wide_samples_us);
    row.clocks_mhz = std::move(finalist.clocks_mhz);
    row.protocol = protocol;
    row.node = lane.node();  // which may not be that of its trial
    row.created_at = utc_now();
    row.sequence = 0;
    row.summarize();
  }
  return result;
}

bool raced_together(const std::vector<Measurement>& rows) {
  std::set<int> places;
  for (const Measurement& row : rows) {
    if (row.race.empty() || row.race != rows.front().race) return false;
    if (races_wide(row.problem) && row.wide_median_us <= 0) return false;
    places.insert(row.place);
  }
  return rows.size() > 1 && places.size() == rows.size() && *places.begin() == 1;
}

std::vector<Measurement> rows_of_race(const std::vector<Measurement>& trials, const std::string& race) {
  std::vector<Measurement> rows;
  std::copy_if(trials.begin(), trials.end(), std::back_inserter(rows),
               [&](const Measurement& row) { return row.race == race; });
  std::sort(rows.begin(), rows.end(), [](const Measurement& a, const Measurement& b) { return a.place < b.place; });
  return rows;
}

}  // namespace attune
