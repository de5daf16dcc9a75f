#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/output.h"
#include "tuner/report/occupancy.h"
#include "tuner/report/roofline.h"

namespace attune::cli {

/// One line of the explanation: a config with what was measured of it, if anything was.
struct Explained {
  KernelConfig config;
  std::optional<Measurement> row;
  std::size_t layer = 0;                     // which of TunedConfigs::layers() has the row
  std::vector<std::string> infeasible;       // why it does not fit the problem; empty if it does
  Staleness staleness = Staleness::current;  // of the row
  std::string stale;                         // why, if it is
  CostEstimate cost;                         // of a feasible one
  int registers = 0;                         // as compiled, else as estimated
  bool registers_compiled = false;
  Roofline roofline;                   // of a feasible one
  std::optional<Occupancy> occupancy;  // of a shown one, by the plan that would be launched
  bool picked = false;
  std::string why_not;  // a sentence; empty for the pick

  bool feasible() const { return infeasible.empty(); }
  bool timed() const { return row && row->status == MeasurementStatus::ok && row->median_us > 0; }
};

/// A database that picks come from.
struct ExplainedLayer {
  TunedConfigs::Layer layer;
  std::int64_t rows = 0;
};

/// Why a config is picked for a problem on a device.
struct Explanation {
  AttentionProblem problem;
  ChosenDevice device;
  ConfigChoice choice;
  std::vector<ExplainedLayer> layers;  // what was looked into, in the order in which it wins
  bool measured = false;               // whether there is a timed row
  std::size_t rows = 0, not_shown = 0;
  std::vector<Explained> candidates;  // the pick first
  std::string tune;                   // the command; empty if the pick is exact, timed and not stale

  /// Whether no system database was found, or none has a row.
  bool no_presets() const;
};

/// Explains `choice`, which `tuned` picks, beside at most `limit` candidates (0: all). Throws Error.
Explanation explain(const AttentionProblem& problem, const ChosenDevice& device, ConfigChoice choice,
                    const TunedConfigs& tuned, std::size_t limit);

Json to_json(const Explanation& explanation);
void print_explanation(const Explanation& explanation);

}  // namespace attune::cli
