#include <fmt/core.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

/// A problem on a GPU model, in the order of TuningDatabase::list().
using Question = std::tuple<std::string, std::string, int>;
Question question_of(const AttentionProblem& problem, const std::string& device, int sm_count) {
  return {canonical_text(problem), device, sm_count};
}

/// What the databases list, those of one problem and device together.
std::vector<TuningDatabase::Entry> entries_of(const DatabaseLayers& databases) {
  std::map<Question, TuningDatabase::Entry> entries;
  for (const auto& database : databases) {
    for (const TuningDatabase::Entry& entry : database->list()) {
      const auto [known, is_new] = entries.try_emplace(question_of(entry.problem, entry.device, entry.sm_count), entry);
      if (is_new) continue;
      known->second.rows += entry.rows;
      known->second.ok += entry.ok;
      known->second.raced += entry.raced;
    }
  }
  std::vector<TuningDatabase::Entry> all;
  for (auto& [question, entry] : entries) all.push_back(std::move(entry));
  return all;
}

Json paths_of(const DatabaseLayers& databases) {
  Json paths = Json::array();
  for (const auto& database : databases) paths.push_back(database->path().string());
  return paths;
}

int list(const DatabaseOptions& options) {
  const DatabaseLayers databases = options.config.open_databases(options.output);
  const std::vector<TuningDatabase::Entry> entries = entries_of(databases);
  if (options.output.json) {
    Json document = {{"database", options.config.database_path().string()}, {"entries", Json::array()}};
    if (options.config.presets()) document["databases"] = paths_of(databases);
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
    const auto count = [](const TuningDatabase& database) { return database.list().size(); };
    print(fmt::format("{} {}; `attune tune` makes some{}\n", options.config.database_path().string(),
                      databases.empty() ? "does not exist yet: nothing was tuned" : "holds no results",
                      options.config.hint_of_presets(count)));
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

/// The best row of a problem and device, and the path of the database that it is in.
struct Best {
  Measurement row;
  std::string database;
};

/// Those of all databases; of equal rows the earlier database's.
std::vector<Best> find_best(const Wanted& wanted, const DatabaseLayers& databases) {
  std::map<Question, Best> found;
  for (const auto& database : databases) {
    for (Measurement& row : find_best(wanted, *database)) {
      Question question = question_of(row.problem, row.device, row.sm_count);
      if (wanted.problem) question = question_of(*wanted.problem, row.device, row.sm_count);
      const auto known = found.find(question);
      if (known == found.end()) {
        found.emplace(std::move(question), Best{std::move(row), database->path().string()});
      } else if (ranks_before(row, known->second.row)) {
        known->second = {std::move(row), database->path().string()};
      }
    }
  }
  std::vector<Best> all;
  for (auto& [question, best] : found) all.push_back(std::move(best));
  return all;
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

/// The database of each row stands there where rows may be of several.
Table best_table(bool presets) {
  Table table = kBestTable;
  if (presets) table.columns.push_back({"database", "/database"});
  return table;
}

int best(const DatabaseOptions& options) {
  const Wanted asked = wanted(options);
  const DatabaseLayers databases = options.config.open_databases(options.output);
  const std::vector<Best> found = find_best(asked, databases);
  const CurrentBuild& build = CurrentBuild::of_process();
  if (const Format format = options.output.format(); format != Format::text) {
    Json document = {{"status", found.empty() ? "nothing_found" : "ok"},
                     {"database", options.config.database_path().string()},
                     {"best", Json::array()}};
    if (options.config.presets()) document["databases"] = paths_of(databases);
    for (const auto& [row, database] : found) {
      document["best"].push_back(to_json(row));
      document["best"].back()["database"] = database;
      if (std::string stale = why_stale(row, build); !stale.empty())
        document["best"].back()["stale"] = std::move(stale);
    }
    print_document(document, best_table(options.config.presets()), format);
  } else {
    for (const auto& [row, database] : found) {
      print_field("problem", canonical_text(row.problem));
      print_field("device", fmt::format("{} ({} SMs)", row.device, row.sm_count));
      print_field("best",
                  fmt::format("{}  [{}, {}{}]", describe(row), to_string(row.rigor), row.created_at, standing_of(row)));
      if (options.config.presets()) print_field("database", database);
      if (const std::string stale = why_stale(row, build); !stale.empty()) print_field("stale", stale);
    }
    if (found.empty()) {
      const auto count = [&](const TuningDatabase& database) { return find_best(asked, database).size(); };
      print(fmt::format("nothing found in {}; `attune tune` with the same flags would find it{}\n",
                        options.config.database_path().string(), options.config.hint_of_presets(count)));
    }
  }
  return found.empty() ? kCheckFailed : kOk;
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
  list_options->config.add_presets_to(*list_verb);
  list_options->output.add_to(*list_verb);

  auto best_options = std::make_shared<DatabaseOptions>();
  CommandLine* best_verb = add_verb(
      *db, "best", "print the best result of a problem on a device, or of all; the exit status is 1 if there is none",
      "attune db best\nattune db best --presets --heads 16 --seq 4096 --head-dim 128 --target h200");
  best_options->problem.add_to(*best_verb, Passes::all, Sizes::optional);
  best_options->device.add_target_to(*best_verb);
  best_options->config.add_database_to(*best_verb);
  best_options->config.add_presets_to(*best_verb);
  best_options->output.add_with_table_to(*best_verb);
  std::vector<Verb> verbs = {{list_verb, [list_options] { return list(*list_options); }},
                             {best_verb, [best_options] { return best(*best_options); }},
                             make_db_status(*db)};
  for (Verb& verb : make_db_maintenance(*db)) verbs.push_back(std::move(verb));
  return verbs;
}

}  // namespace attune::cli
