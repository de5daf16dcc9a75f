#include "tuner/cli/explanation.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database/tuned_shapes.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

Explained explain_config(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                         std::optional<Measurement> row) {
  Explained result;
  result.config = config;
  result.infeasible = infeasibility(problem, config, device);
  if (result.feasible()) {
    result.cost = estimate_cost(problem, config, device);
    result.roofline = roofline_of(problem, config, device);
    result.registers_compiled = row && row->registers > 0;
    result.registers = result.registers_compiled ? row->registers : result.cost.registers;
  }
  result.row = std::move(row);
  return result;
}

/// The occupancy of the launch that does the products. None for a problem of more tiles than a launch can have.
std::optional<Occupancy> occupancy_of(const AttentionProblem& problem, const Explained& explained,
                                      const DeviceSpec& device) {
  const KernelPlan plan = generate(problem, explained.config, device);
  try {
    return occupancy_of_main(plan, problem, explained.registers, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

/// A row of the problem, and how stale it is.
struct TriedRow {
  Measurement row;
  Staleness staleness = Staleness::current;
  std::size_t layer = 0;  // of TunedConfigs::layers()

  bool ok() const { return row.status == MeasurementStatus::ok; }
  bool can_be_picked() const { return ok() && error_beyond_bounds(row).empty(); }
  /// Before another row of its config, which is older or of a later database: as picks prefer them.
  bool stands_before(const TriedRow& other) const {
    if (can_be_picked() != other.can_be_picked() && ok() && other.ok()) return can_be_picked();
    if (staleness != other.staleness) return staleness < other.staleness;
    return layer == other.layer && row.rigor >= other.row.rigor;
  }
};

/// Each config by the row that picks take it by: of the least stale ones those of the earlier database, then the
/// newest of the highest rigor.
std::vector<TriedRow> tried_rows(const AttentionProblem& problem, const DeviceSpec& device, const TunedConfigs& tuned) {
  std::vector<TriedRow> rows;
  for (std::size_t layer = 0; layer < tuned.layers().size(); ++layer) {
    const TuningDatabase* const database = tuned.layers()[layer].database.get();
    for (const TuningDatabase::Entry& entry : database->list()) {
      if (entry.device != device.name || entry.sm_count != device.sm_count ||
          !same_but_scale_and_layout(entry.problem, problem))
        continue;
      for (Measurement& row : database->find_all(entry.problem, entry.device, entry.sm_count)) {
        TriedRow tried{std::move(row), Staleness::current, layer};
        tried.staleness = tuned.build().staleness(tried.row, device);
        const auto same = std::find_if(rows.begin(), rows.end(),
                                       [&](const TriedRow& other) { return other.row.config == tried.row.config; });
        if (same == rows.end()) {
          rows.push_back(std::move(tried));
        } else if (tried.stands_before(*same)) {
          *same = std::move(tried);
        }
      }
    }
  }
  return rows;
}

/// The configs that have a row; the best first, failures last.
std::vector<Explained> tried_configs(const AttentionProblem& problem, const DeviceSpec& device,
                                     const TunedConfigs& tuned) {
  std::vector<Explained> tried;
  for (TriedRow& row : tried_rows(problem, device, tuned)) {
    const KernelConfig config = row.row.config;
    std::string stale = row.ok() ? tuned.build().why_stale(row.row, device) : "";
    Explained& added = tried.emplace_back(explain_config(problem, config, device, std::move(row.row)));
    added.layer = row.layer;
    added.staleness = row.staleness;
    added.stale = std::move(stale);
  }
  std::sort(tried.begin(), tried.end(), [](const Explained& a, const Explained& b) {
    const bool a_ok = a.row->status == MeasurementStatus::ok, b_ok = b.row->status == MeasurementStatus::ok;
    if (a_ok != b_ok) return a_ok;
    if (!a_ok) return canonical_text(a.config) < canonical_text(b.config);
    if (a.staleness != b.staleness) return a.staleness < b.staleness;
    return ranks_before(*a.row, *b.row);
  });
  return tried;
}

std::string percent(double ratio) { return fmt::format("{:.1f} %", (ratio - 1) * 100); }

/// Why a config was not picked, beside the one that was and where that came from.
std::string why_not_picked(const Explained& other, const Explained& pick, ConfigOrigin origin,
                           const std::vector<TunedConfigs::Layer>& layers) {
  if (!other.row) {
    return fmt::format("not tried; by the cost model its time differs from the pick's by {:+.1f} %",
                       (other.cost.microseconds / pick.cost.microseconds - 1) * 100);
  }
  const Measurement& row = *other.row;
  if (row.status != MeasurementStatus::ok) {
    return fmt::format("failed: {}{}{}", to_string(row.status), row.reason.empty() ? "" : ": ", row.reason);
  }
  if (!other.feasible()) return fmt::format("does not fit: {}", fmt::join(other.infeasible, "; "));
  if (const std::string why = error_beyond_bounds(row); !why.empty()) return "is never picked: " + why;
  if (origin != ConfigOrigin::exact || !pick.row || pick.row->status != MeasurementStatus::ok) {
    return row.rigor == Rigor::estimate ? "ranked by the cost model, before which goes what was measured, even for "
                                          "other shapes; `--config tuned` "
                                          "takes the best of these"
                                        : "stored, but the pick did not come from these rows";
  }
  if (other.staleness > pick.staleness) return "stale: " + other.stale;
  if (other.layer > pick.layer) {
    const TunedConfigs::Layer& over = layers[pick.layer];
    return fmt::format("of the {}, over which {} win", layers[other.layer].title,
                       over.of_system ? fmt::format("rows of the {}", over.title) : "a user's own rows");
  }
  if (row.rigor != pick.row->rigor) {
    return fmt::format("its rigor is {}, the pick's {}", to_string(row.rigor), to_string(pick.row->rigor));
  }
  if (!other.timed() || !pick.timed()) {
    const double mine = row.ranking_us(), best = pick.row->ranking_us();
    if (mine <= 0 || best <= 0) return "has no time";
    return mine > best ? fmt::format("slower by {} by the cost model", percent(mine / best))
                       : "as fast by the cost model, and later in the fixed order";
  }
  if (is_election(*pick.row)) return "no race has told it from the pick, which stands until one does";
  if (row.race != pick.row->race && !pick.row->race.empty())
    return row.race.empty() ? "was not in the final race: its time is a probe's" : "was in an older race";
  const char* const kind = have_both_spreads(row, *pick.row) ? "mean over both spreads" : "median";
  if (row.samples_us.empty() || pick.row->samples_us.empty()) {  // as in presets
    return fmt::format("its {} differs by {:+.2f} % (no samples are stored of one of them, or of both)", kind,
                       (ratio_of_medians(row, *pick.row) - 1) * 100);
  }
  const bool in_turns = of_one_race(row, *pick.row);
  const Comparison compared =
      in_turns ? compare_rows(row, *pick.row) : compare_times(row.samples_us, pick.row->samples_us);
  const std::string interval =
      compared.interval
          ? fmt::format(" ({:.4f} to {:.4f} times the pick's {} {})", compared.interval->low, compared.interval->high,
                        have_both_spreads(row, *pick.row) ? kind : "time",
                        in_turns ? "at 95 %" : "by the samples alone: what drifted between the runs is not in them")
          : fmt::format(" ({})", compared.reason);
  if (compared.verdict == Verdict::slower) return fmt::format("slower by {}{}", percent(compared.ratio), interval);
  if (compared.verdict == Verdict::faster) return fmt::format("faster in these samples, yet not picked{}", interval);
  const std::string difference = compared.ratio == 1
                                     ? fmt::format("its {} is the same: later in the fixed order", kind)
                                     : fmt::format("its {} differs by {:+.2f} %", kind, (compared.ratio - 1) * 100);
  return compared.interval ? fmt::format("within noise of the pick{}; {}", interval, difference)
                           : fmt::format("{}{}", difference, interval);
}

/// What would find a measured answer.
std::string tune_command(const AttentionProblem& problem, const ChosenDevice& device) {
  return fmt::format("attune tune --problem \"{}\" --device {}", canonical_text(problem),
                     device.is_cuda() ? device.name : "cuda:0");
}

}  // namespace

bool Explanation::no_presets() const {
  return std::none_of(layers.begin(), layers.end(),
                      [](const ExplainedLayer& each) { return each.layer.of_system && each.rows > 0; });
}

Explanation explain(const AttentionProblem& problem, const ChosenDevice& chosen, ConfigChoice choice,
                    const TunedConfigs& tuned, std::size_t limit) {
  Explanation result;
  result.problem = problem;
  result.device = chosen;
  const DeviceSpec& device = result.device.spec;
  result.choice = std::move(choice);
  for (const TunedConfigs::Layer& layer : tuned.layers()) {
    ExplainedLayer& added = result.layers.emplace_back(ExplainedLayer{layer});
    for (const TuningDatabase::Entry& entry : layer.database->list()) added.rows += entry.rows;
  }

  result.candidates = tried_configs(result.problem, device, tuned);
  result.rows = result.candidates.size();
  result.measured = std::any_of(result.candidates.begin(), result.candidates.end(),
                                [](const Explained& candidate) { return candidate.timed(); });
  if (result.rows == 0) {
    for (const Candidate& candidate : config_space(result.problem, device)) {
      if (!candidate.feasible()) break;
      result.candidates.push_back(explain_config(result.problem, candidate.config, device, std::nullopt));
    }
  }
  const auto is_pick = [&](const Explained& candidate) { return candidate.config == result.choice.config; };
  auto pick = std::find_if(result.candidates.begin(), result.candidates.end(), is_pick);
  if (pick == result.candidates.end()) {
    result.candidates.push_back(explain_config(result.problem, result.choice.config, device, std::nullopt));
    pick = result.candidates.end() - 1;
  }
  std::rotate(result.candidates.begin(), pick, pick + 1);
  result.candidates.front().picked = true;
  if (limit > 0 && result.candidates.size() > limit) {
    result.not_shown = result.candidates.size() - limit;
    result.candidates.resize(limit);
  }
  for (Explained& candidate : result.candidates) {
    if (candidate.feasible()) candidate.occupancy = occupancy_of(result.problem, candidate, device);
  }
  for (std::size_t i = 1; i < result.candidates.size(); ++i)
    result.candidates[i].why_not =
        why_not_picked(result.candidates[i], result.candidates.front(), result.choice.origin, tuned.layers());
  const Explained& picked = result.candidates.front();
  if (result.choice.origin != ConfigOrigin::exact || !picked.timed() || !picked.stale.empty())
    result.tune = tune_command(result.problem, result.device);
  return result;
}

}  // namespace attune::cli
