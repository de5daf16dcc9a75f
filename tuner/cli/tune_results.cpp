#include "tuner/cli/tune_results.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "generator/error.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/report.h"
#include "tuner/database/database_json.h"
#include "tuner/database/file_system.h"
#include "tuner/database/output_file.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

std::string basis_of(const SweepResult& result, const ChosenDevice& device) {
  if (result.timed) return "timed on the GPU";
  return fmt::format("ranked by the cost model, proven on the {}", device.is_cuda() ? "GPU" : "emulator");
}

/// What was done in place of a search by times, which needs a GPU; empty if that was not asked for or was done.
std::string done_instead(const SweepResult& result, Rigor asked, const ChosenDevice& device) {
  if (result.timed || asked == Rigor::estimate) return "";
  return fmt::format(
      "--rigor {} times candidates, which the {} cannot: the cost model ranked all {} configs, and {} of the first "
      "were "
      "proven there, as with --rigor estimate. A GPU (--device cuda:N) would time them",
      to_string(asked), device.is_cuda() ? "device" : "emulator", result.space_size, result.rows.size());
}

/// The weights of a race that timed wide scores, too; empty of any other.
std::string race_ranks_by(const SweepResult& result) {
  if (result.finalists.empty() || result.finalists.front().wide_median_us <= 0) return "";
  return fmt::format("geometric mean of the times at the problem's own spread and at {} times it, with equal weights",
                     kWideSpread);
}

/// What calls of the problem run, now that the results are stored; none where there is no best.
std::optional<ConfigChoice> pick_of(const Tuned& tuned, const ChosenDevice& device, TunedConfigs& picks) {
  return tuned.result && tuned.result->best ? picks.find(tuned.problem, device.spec) : std::nullopt;
}

void print_tuned(const Tuned& tuned, const ChosenDevice& device, Rigor asked, TunedConfigs& picks) {
  if (!tuned.name.empty()) print_field("name", tuned.name);
  print_field("problem", canonical_text(tuned.problem));
  if (!tuned.error.empty()) print_field("error", tuned.error);
  if (tuned.is_not_begun()) print_field("status", "not begun: the list ended before");
  if (!tuned.result) return;
  const SweepResult& result = *tuned.result;
  print_field("device", device.is_cuda() ? fmt::format("{} {}", device.name, device.spec.name)
                                         : fmt::format("emulator of {}", device.spec.key));
  print_field("basis", basis_of(result, device) + (result.timed ? "" : ": times are estimates"));
  if (const std::string instead = done_instead(result, asked, device); !instead.empty())
    print_field("instead", instead);
  print_field("tried", fmt::format("{} candidates of {} in {:.1f} s, {} more from earlier runs; ended by: {}",
                                   result.rows.size() - static_cast<std::size_t>(result.reused), result.space_size,
                                   result.seconds, result.reused, result.ended_by));
  for (const Measurement& row : result.rows) {
    if (row.status != MeasurementStatus::ok && row.status != MeasurementStatus::infeasible)
      print_field("failed", describe(row));
  }
  for (const Measurement& row : result.finalists) {
    std::string behind;
    if (row.place > 1) {
      const Comparison by = compare_rows(row, result.finalists.front());
      if (by.interval) {
        behind = fmt::format("  takes {:.4f} of the first's {} (95 %: {:.4f} to {:.4f})", by.ratio,
                             have_both_spreads(row, result.finalists.front()) ? "mean time" : "time", by.interval->low,
                             by.interval->high);
      }
    }
    print_field(row.place == 1 ? "race" : "", fmt::format("{}. {}{}", row.place, describe(row), behind));
  }
  if (const std::string how = race_ranks_by(result); !how.empty()) print_field("", "ranked by the " + how);
  if (result.default_measurement) print_field("default", describe(*result.default_measurement));
  if (result.best) {
    print_field("best", describe(*result.best) + (result.default_measurement
                                                      ? compare_with_default(*result.best, *result.default_measurement)
                                                      : ""));
  } else {
    print_field("best", "none: no candidate was correct");
  }
  if (const auto pick = pick_of(tuned, device, picks); pick && !(pick->config == result.best->config)) {
    print_field("calls take", fmt::format("{}: {}. To run the best of this search give `--config tuned`",
                                          canonical_text(pick->config), describe_origin(*pick)));
  }
}

}  // namespace

std::string status_of(const Tuned& tuned) {
  if (!tuned.error.empty()) return "error";
  if (tuned.is_not_begun()) return "not_begun";
  if (tuned.result->ended_by == "interrupted") return "interrupted";
  if (tuned.result->not_stored) return "not_stored";
  return tuned.result->best ? "ok" : "nothing_found";
}

ExitStatus exit_status_of(const std::vector<Tuned>& all, bool interrupted) {
  if (interrupted) return kInterrupted;
  ExitStatus worst = kOk;
  for (const Tuned& tuned : all) {
    const std::string status = status_of(tuned);
    if (status == "not_stored") return kBadInput;
    if (status != "ok") worst = kCheckFailed;
  }
  return worst;
}

Json to_json(const Tuned& tuned, const ChosenDevice& device, Rigor asked, TunedConfigs& picks) {
  Json document = {{"status", status_of(tuned)},
                   {"problem", canonical_text(tuned.problem)},
                   {"device", device.name},
                   {"target", device.spec.key}};
  if (!tuned.name.empty()) document["name"] = tuned.name;
  if (!tuned.error.empty()) document["message"] = tuned.error;
  if (!tuned.result) return document;
  const SweepResult& result = *tuned.result;
  document["timed"] = result.timed;
  document["basis"] = basis_of(result, device);
  document["rigor"] = to_string(result.rigor);
  document["rigor_asked"] = to_string(asked);
  if (const std::string instead = done_instead(result, asked, device); !instead.empty()) document["instead"] = instead;
  document["ended_by"] = result.ended_by;
  document["seconds"] = result.seconds;
  document["space"] = result.space_size;
  document["tried"] = result.rows.size() - static_cast<std::size_t>(result.reused);
  document["reused"] = result.reused;
  document["database"] = picks.user()->path().string();
  if (result.best) document["best"] = cli::to_json(*result.best);
  if (const auto pick = pick_of(tuned, device, picks)) add_choice(document["pick"], *pick);
  if (result.default_measurement) document["default"] = cli::to_json(*result.default_measurement);
  if (result.timed && result.best && result.default_measurement && result.default_measurement->median_us > 0) {
    document["speed_over_default"] = ratio_of_medians(*result.default_measurement, *result.best);
  }
  Json race = Json::array();
  for (const Measurement& row : result.finalists) {
    race.push_back({{"place", row.place}, {"config", canonical_text(row.config)}, {"median_us", row.median_us}});
    if (row.wide_median_us > 0) race.back()["wide_median_us"] = row.wide_median_us;
    const Comparison behind = compare_rows(row, result.finalists.front());
    if (behind.interval)
      race.back().update(
          Json{{"time_ratio", behind.ratio}, {"interval", {behind.interval->low, behind.interval->high}}});
  }
  if (!race.empty()) document["race"] = std::move(race);
  if (const std::string how = race_ranks_by(result); !how.empty()) document["race_ranks_by"] = how;
  Json counts = Json::object();
  for (const Measurement& row : result.rows) {
    const std::string status(to_string(row.status));
    counts[status] = counts.value(status, 0) + 1;
  }
  document["counts"] = std::move(counts);
  document["notes"] = result.notes;
  return document;
}

void print_all(const std::vector<Tuned>& all, const ChosenDevice& device, Rigor asked, TunedConfigs& picks) {
  for (const Tuned& tuned : all) {
    print_tuned(tuned, device, asked, picks);
    if (all.size() > 1) print("\n");
  }
  print_field("database", picks.user()->path().string());
}

void keep_unsaved(const std::vector<Tuned>& all, const TuningDatabase& database) {
  std::vector<Measurement> rows;
  for (const Tuned& tuned : all) {
    if (tuned.result) rows.insert(rows.end(), tuned.result->unsaved.begin(), tuned.result->unsaved.end());
  }
  if (rows.empty()) return;
  std::error_code ignored;
  std::string folder = (std::filesystem::temp_directory_path(ignored) / "attune-unsaved-XXXXXX").string();
  const std::string path = (::mkdtemp(folder.data()) != nullptr ? folder : ".") + "/results.json";
  try {
    write_output_file(path, export_measurements(rows));
    warn(fmt::format("results that are not stored are kept in {}: `attune db import {} --database {}` stores them",
                     path, shell_word(path), shell_word(database.path().string())));
  } catch (const Error& error) {
    warn(fmt::format("results that are not stored are lost: {}", error.what()));
  }
}

}  // namespace attune::cli
