#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/call/config_source.h"
#include "tuner/database/current_build.h"
#include "tuner/database/tuning_database.h"

namespace attune {

// The parts of TunedConfigs::find(): where the rows lie that may be picked, and what they offer.

/// The rows of one tuned shape in one database.
struct ShapeRows {
  const TuningDatabase* database = nullptr;
  std::string_view title;  ///< of the database: outlives this
  int layer = 0;           ///< 0 is looked at first
  TuningDatabase::TunedShape shape;
  ConfigOrigin origin = ConfigOrigin::exact;
  int sm_difference = 0, clock_difference = 0;  ///< of another device

  /// Those of one level answer together; the least level is looked at first.
  using Level = std::tuple<ConfigOrigin, int, int, int, std::string_view, int, bool>;
  Level level() const {
    const bool all_databases = origin == ConfigOrigin::nearest_shape;
    return {origin,         all_databases ? 0 : layer, sm_difference, clock_difference, shape.device,
            shape.sm_count, !shape.same_problem};
  }
  bool operator<(const ShapeRows& other) const {
    return std::tuple(level(), shape.distance, layer) < std::tuple(other.level(), other.shape.distance, other.layer);
  }
};

static_assert(ConfigOrigin::exact < ConfigOrigin::nearest_shape &&
                  ConfigOrigin::nearest_shape < ConfigOrigin::nearest_device,
              "ShapeRows are sorted by it");

/// All of a database on the device that is asked for and on those of its family, unsorted.
std::vector<ShapeRows> shape_rows_of(const TuningDatabase& database, int layer, std::string_view title,
                                     const AttentionProblem& problem, const DeviceSpec& device);

/// What is asked, once: it remembers how many kernels it generated.
class PickQuestion {
 public:
  /// The references outlive this.
  PickQuestion(const AttentionProblem& problem, const DeviceSpec& device, const std::vector<KernelConfig>& passed_over,
               const CurrentBuild& build)
      : problem(problem), device(device), passed_over_(passed_over), build_(build) {}

  bool is_passed_over(const KernelConfig& config) const;
  bool fits(const KernelConfig& config) const;
  /// Generates at most 64 kernels; a row beyond them counts as one of another kernel.
  Staleness staleness(const Measurement& row) const;
  bool is_at_most(Staleness most, const Measurement& row) const;
  std::string why_stale(const Measurement& row) const { return build_.why_stale(row, device); }

  const AttentionProblem& problem;
  const DeviceSpec& device;

 private:
  const std::vector<KernelConfig>& passed_over_;
  const CurrentBuild& build_;
  mutable std::set<std::string> kernels_;
};

/// The best row of a shape whose config can be taken.
struct ConfigOffer {
  const ShapeRows* from = nullptr;
  Measurement row;
  KernelConfig config;               ///< the row's, or what of it fits
  std::vector<std::string> changes;  ///< what does not, for people
};

/// What each shape offers of its measured rows, or of its estimates, that are no staler than `most`, in their order; a
/// shape without an offer is left out.
std::vector<ConfigOffer> offers_of(const ShapeRows* begin, const ShapeRows* end, const PickQuestion& asked,
                                   bool estimates, Staleness most);

/// For people: the problem and device of the row, its time, its database, what of its config does not fit, and why it
/// is stale, if `stale` is not empty.
std::string describe(const ConfigOffer& offer, const std::string& stale);

}  // namespace attune
