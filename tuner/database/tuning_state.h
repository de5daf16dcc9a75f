#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "tuner/database/current_build.h"
#include "tuner/database/tuning_database.h"

namespace attune {

/// What databases say of a problem on a GPU model, in rising order of what is left to do.
enum class TuningState {
  tuned,    ///< measured of a kernel that runs now
  stale,    ///< measured of another one
  failed,   ///< tried, and no config was right and timed
  missing,  ///< never tried, or rated by the cost model alone
};
std::string_view to_string(TuningState state);  ///< "tuned"

/// A GPU model, as rows have it.
struct GpuModel {
  std::string device;  ///< "NVIDIA H200"
  int sm_count = 0;
  friend auto operator<=>(const GpuModel&, const GpuModel&) = default;
};

struct ProblemState {
  TuningState state = TuningState::missing;
  /// Tuned and stale: the fastest such row of a database's best; failed: the newest failure.
  std::optional<Measurement> row;
  std::string why;       ///< of a stale row, as CurrentBuild::why_stale(); of a failure, its reason
  std::string database;  ///< the path of the one that the row is in
};

/// The models that any of the databases has rows of, by name. Throws Error(database).
std::vector<GpuModel> models_of(const std::vector<std::shared_ptr<TuningDatabase>>& databases);

/// What the databases say of the problem on the model. A model that the table of devices does not know has no kernel
/// that runs now: its rows count as current. Throws Error(database).
ProblemState tuning_state(const AttentionProblem& problem, const GpuModel& model,
                          const std::vector<std::shared_ptr<TuningDatabase>>& databases, const CurrentBuild& build);

}  // namespace attune
