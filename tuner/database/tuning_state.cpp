#include "tuner/database/tuning_state.h"

#include <set>
#include <utility>

#include "generator/device/device_spec.h"

namespace attune {
namespace {

bool is_measured(const Measurement& row) {
  return row.status == MeasurementStatus::ok && row.rigor != Rigor::estimate && row.ranking_us() > 0;
}

}  // namespace

std::string_view to_string(TuningState state) {
  switch (state) {
    case TuningState::tuned:
      return "tuned";
    case TuningState::stale:
      return "stale";
    case TuningState::failed:
      return "failed";
    case TuningState::missing:
      break;
  }
  return "missing";
}

std::vector<GpuModel> models_of(const std::vector<std::shared_ptr<TuningDatabase>>& databases) {
  std::set<GpuModel> models;
  for (const auto& database : databases)
    for (const TuningDatabase::Entry& entry : database->list()) models.insert({entry.device, entry.sm_count});
  return {models.begin(), models.end()};
}

ProblemState tuning_state(const AttentionProblem& problem, const GpuModel& model,
                          const std::vector<std::shared_ptr<TuningDatabase>>& databases, const CurrentBuild& build) {
  const std::optional<DeviceSpec> known = find_device_by_name(model.device);
  ProblemState found;
  const auto consider = [&](TuningState state, const Measurement& row, const std::string& why,
                            const TuningDatabase& database) {
    const bool first = state < found.state;
    const bool better =
        state == found.state && found.row &&
        (state == TuningState::failed ? is_newer(row, *found.row) : row.ranking_us() < found.row->ranking_us());
    if (first || better) found = {state, row, why, database.path().string()};
  };
  for (const auto& database : databases) {
    const auto why_stale = [&](const Measurement& row) { return known ? build.why_stale(row, *known) : ""; };
    const auto best = database->best(problem, model.device, model.sm_count);
    if (best && is_measured(*best) && why_stale(*best).empty()) {
      consider(TuningState::tuned, *best, "", *database);
      continue;
    }
    for (const Measurement& row : database->latest(problem, model.device, model.sm_count)) {
      if (row.rigor == Rigor::estimate) continue;
      if (!is_measured(row)) {
        consider(TuningState::failed, row, row.reason, *database);
        continue;
      }
      const std::string why = why_stale(row);
      consider(why.empty() ? TuningState::tuned : TuningState::stale, row, why, *database);
    }
  }
  return found;
}

}  // namespace attune
