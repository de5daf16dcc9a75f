#include <fmt/core.h>

#include "generator/error.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/db_maintenance.h"
#include "tuner/cli/db_status.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/table.h"
#include "tuner/cli/verb.h"
#include "tuner/database/current_build.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

struct DatabaseOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
};

int list(const DatabaseOptions& options) {
  const std::shared_ptr<TuningDatabase> database = options.config.open_existing_database(options.output);
  const std::vector<TuningDatabase::Entry> entries = database ? database->list() : std::vector<TuningDatabase::Entry>{};
  if (options.output.json) {
    Json document = {{"database", options.config.database_path().string()}, {"entries", Json::array()}};
    for (const TuningDatabase::Entry& entry : entries) {
      document["entries"].push_back({{"problem", canonical_text(entry.problem)},
                                     {"device", entry.device},
                                     {"sm_count", entry.sm_count},
                                     {"rows", entry.rows},
                                     {"ok", entry.ok},
                                     {"raced", entry.raced}});
    }
    print_json(document);
    return kOk;
  }
  if (entries.empty()) {
    print(fmt::format("{} {}; `attune tune` makes some\n", options.config.database_path().string(),
                      database ? "holds no results" : "does not exist yet: nothing was tuned"));
  }
  for (const TuningDatabase::Entry& entry : entries) {
    print_line(fmt::format("{:<56} {} ({} SMs): {} results, {} ok{}", canonical_text(entry.problem), entry.device,
                           entry.sm_count, entry.rows, entry.ok,
                           entry.raced > 0 ? fmt::format(", {} from a race", entry.raced) : ""));
  }
  return kOk;
}

/// What `db best` looks for: one problem on one device, or all problems, of one device or of all.
struct Wanted {
  std::optional<AttentionProblem> problem;
  std::optional<DeviceSpec> device;
};

Wanted wanted(const DatabaseOptions& options) {
  Wanted wanted;
  if (options.problem.any_given()) wanted.problem = options.problem.problem();
  if (!wanted.problem && !options.device.any_given()) return wanted;
  const ChosenDevice chosen = options.device.choose();
  if (!options.device.any_given()) warn(fmt::format("no --target given: looking for results of {}", chosen.spec.name));
  wanted.device = chosen.spec;
  return wanted;
}

std::vector<Measurement> find_best(const Wanted& wanted, const TuningDatabase& database) {
  std::vector<Measurement> found;
  if (wanted.problem) {
    auto best = database.best(*wanted.problem, wanted.device->name, wanted.device->sm_count);
    if (best) found.push_back(std::move(*best));
    return found;
  }
  for (const TuningDatabase::Entry& entry : database.list()) {
    if (wanted.device && (entry.device != wanted.device->name || entry.sm_count != wanted.device->sm_count)) continue;
    if (auto best = database.best(entry.problem, entry.device, entry.sm_count)) found.push_back(std::move(*best));
  }
  return found;
}

/// Why this row and no other: its place, or that none has decided.
std::string standing_of(const Measurement& row) {
  if (row.place == 0) return "";
  if (is_election(row)) return ", which stands until a race decides";
  return fmt::format(", place {} in the race of {}", row.place, row.race);
}

/// How a row differs from what runs now; nothing of a device that is not known.
std::string why_stale(const Measurement& row, const CurrentBuild& build) {
  const std::optional<DeviceSpec> device = find_device_by_name(row.device);
  return device ? build.why_stale(row, *device) : "";
}

const Table kBestTable = {"/best",
                          {{"problem", "/problem"},
                           {"device", "/device"},
                           {"sm_count", "/sm_count"},
                           {"config", "/config"},
                           {"median_us", "/median_us"},
                           {"wide_median_us", "/wide_median_us"},
                           {"tflops", "/tflops"},
                           {"rigor", "/rigor"},
                           {"created_at", "/created_at"}}};

int best(const DatabaseOptions& options) {
  const Wanted asked = wanted(options);
  const std::shared_ptr<TuningDatabase> database = options.config.open_existing_database(options.output);
  const std::vector<Measurement> rows = database ? find_best(asked, *database) : std::vector<Measurement>{};
  const CurrentBuild& build = CurrentBuild::of_process();
  if (const Format format = options.output.format(); format != Format::text) {
    Json document = {{"status", rows.empty() ? "nothing_found" : "ok"},
                     {"database", options.config.database_path().string()},
                     {"best", Json::array()}};
    for (const Measurement& row : rows) {
      document["best"].push_back(to_json(row));
      if (std::string stale = why_stale(row, build); !stale.empty())
        document["best"].back()["stale"] = std::move(stale);
    }
    print_document(document, kBestTable, format);
  } else {
    for (const Measurement& row : rows) {
      print_field("problem", canonical_text(row.problem));
      print_field("device", fmt::format("{} ({} SMs)", row.device, row.sm_count));
      print_field("best",
                  fmt::format("{}  [{}, {}{}]", describe(row), to_string(row.rigor), row.created_at, standing_of(row)));
      if (const std::string stale = why_stale(row, build); !stale.empty()) print_field("stale", stale);
    }
    if (rows.empty())
      print(fmt::format("nothing found in {}; `attune tune` with the same flags would find it\n",
                        options.config.database_path().string()));
  }
  return rows.empty() ? kCheckFailed : kOk;
}

}  // namespace

std::vector<Verb> make_db(CommandLine& command) {
  CommandLine* db =
      add_verb(command, "db", "show and maintain the tuning database",
               "attune db list\nattune db best --heads 16 --seq 4096 --head-dim 128 --target h200 --json");
  db->require_verb();

  auto list_options = std::make_shared<DatabaseOptions>();
  CommandLine* list_verb =
      add_verb(*db, "list", "list every problem and device that has a result", "attune db list --json");
  list_options->config.add_database_to(*list_verb);
  list_options->output.add_to(*list_verb);

  auto best_options = std::make_shared<DatabaseOptions>();
  CommandLine* best_verb = add_verb(
      *db, "best", "print the best result of a problem on a device, or of all; the exit status is 1 if there is none",
      "attune db best\nattune db best --heads 16 --seq 4096 --head-dim 128 --target h200");
  best_options->problem.add_to(*best_verb, Passes::all, Sizes::optional);
  best_options->device.add_target_to(*best_verb);
  best_options->config.add_database_to(*best_verb);
  best_options->output.add_with_table_to(*best_verb);
  std::vector<Verb> verbs = {{list_verb, [list_options] { return list(*list_options); }},
                             {best_verb, [best_options] { return best(*best_options); }},
                             make_db_status(*db)};
  for (Verb& verb : make_db_maintenance(*db)) verbs.push_back(std::move(verb));
  return verbs;
}

}  // namespace attune::cli
