#include "tuner/sweep/standing_config.h"

#include <utility>

#include "tuner/search/race.h"

namespace attune {
namespace {

std::vector<Measurement> elected(Measurement row) {
  row.race = row.created_at = utc_now();
  row.place = 1;
  row.sequence = 0;
  if (!is_election(row)) row.protocol += kUntilARace;
  return {std::move(row)};
}

}  // namespace

double trial_time(const Measurement& row, Rigor rigor) {
  return rigor == Rigor::estimate ? row.predicted_us : row.median_us;
}

bool lacks_time(const Measurement& row) { return row.status == MeasurementStatus::ok && row.ranking_us() <= 0; }

void StandingConfig::store_trial(const Measurement& row) {
  const bool is_default = row.config == known_.default_config;
  if (!default_is_stored_ && !is_default) {
    waiting_.push_back(row);
    return;
  }
  if (elects(row)) {
    writer_.store(elected(row));
  } else if (!lacks_time(row)) {
    writer_.store({row});
  }
  default_is_stored();
}

void StandingConfig::store_reused(const Measurement& row) {
  if (!(row.config == known_.default_config)) return;
  if (row.race.empty() && elects(row)) writer_.store(elected(row));
  default_is_stored();
}

void StandingConfig::default_is_stored() {
  if (std::exchange(default_is_stored_, true)) return;
  for (const Measurement& waiting : std::exchange(waiting_, {})) store_trial(waiting);
}

bool StandingConfig::elects(const Measurement& row) const {
  if (known_.rigor == Rigor::estimate || row.status != MeasurementStatus::ok || trial_time(row, known_.rigor) <= 0)
    return false;
  if (known_.elected && row.config == *known_.elected) return true;
  return row.config == known_.default_config && !known_.elected_is_reused;
}

const Measurement* StandingConfig::row_that_stands(const std::vector<Measurement>& trials) const {
  for (const std::optional<KernelConfig>& config : {known_.elected, std::optional(known_.default_config)}) {
    for (const Measurement& row : trials) {
      if (!config || !(row.config == *config) || row.status != MeasurementStatus::ok) continue;
      if (trial_time(row, known_.rigor) > 0) return &row;
    }
  }
  return nullptr;
}

}  // namespace attune
