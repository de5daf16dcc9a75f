#include "tuner/cli/config_options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/cli/exit_status.h"
#include "tuner/database/system_database.h"

namespace attune::cli {
namespace {

constexpr const char* kTuned = "tuned";  // for --config

void say_notes(const TuningDatabase& database, const OutputOptions& output) {
  for (const std::string& note : database.notes()) warn(note);
  output.say(fmt::format("database {}", database.path().string()));
}

DatabaseLayers open_shipped_databases(const OutputOptions& output) {
  DatabaseLayers databases = open_system_databases();
  for (const auto& database : databases) {
    for (const std::string& note : database->notes()) warn(note);
    output.say(fmt::format("system database {}", database->path().string()));
  }
  return databases;
}

}  // namespace

void ConfigOptions::add_config_to(CommandLine& verb) {
  verb.add_option(
          "--config", config_,
          "this config instead of the picked one: \"sm80 q128 kv64 w4 st2\", see `attune show space`; or tuned: "
          "the best that was tuned for this very problem, though the cost model alone may have ranked it")
      .group("Config");
}

void ConfigOptions::add_database_to(CommandLine& verb) {
  verb.add_option("--database", database_,
                  "tuning database (default: $ATTUNE_DATABASE, else ~/.local/share/attune/tuning.db)")
      .group("Config");
}

void ConfigOptions::add_presets_to(CommandLine& verb) {
  verb.add_flag("--presets", presets_, "the shipped results, too").group("Config");
}

std::filesystem::path ConfigOptions::database_path() const {
  return database_.empty() ? TuningDatabase::default_path() : std::filesystem::path(database_);
}

std::shared_ptr<TuningDatabase> ConfigOptions::open_writable_database(const OutputOptions& output) const {
  auto database = std::make_shared<TuningDatabase>(database_path());
  if (database->read_only()) {
    const std::string why =
        database->notes().empty() ? "it is read-only" : fmt::format("{}", fmt::join(database->notes(), "; "));
    throw Error(ErrorCode::database, fmt::format("results cannot be stored in {}: {}. --database PATH names another",
                                                 database_path().string(), why));
  }
  say_notes(*database, output);
  return database;
}

bool ConfigOptions::database_exists() const {
  std::error_code ignored;
  if (std::filesystem::exists(database_path(), ignored)) return true;
  if (!database_.empty())
    throw NothingFound(
        fmt::format("there is no such database: {}; `attune tune` with this --database begins it", database_));
  return false;
}

std::shared_ptr<TuningDatabase> ConfigOptions::open_for_reading() const {
  // One of the system's is looked at, too.
  const std::vector<std::filesystem::path> paths = system_database_paths();
  const bool shipped = std::any_of(paths.begin(), paths.end(), [&](const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::equivalent(database_path(), path, ignored);
  });
  return shipped ? TuningDatabase::open_shipped(database_path()) : TuningDatabase::open_for_reading(database_path());
}

std::shared_ptr<TuningDatabase> ConfigOptions::open_existing_database(const OutputOptions& output) const {
  if (!database_exists()) {
    output.say(fmt::format("database {} does not exist yet", database_path().string()));
    return nullptr;
  }
  auto database = open_for_reading();
  if (!database->unreadable_because().empty()) throw Error(ErrorCode::database, database->unreadable_because());
  say_notes(*database, output);
  return database;
}

DatabaseLayers ConfigOptions::open_databases(const OutputOptions& output) const {
  DatabaseLayers databases;
  if (auto database = open_existing_database(output)) databases.push_back(std::move(database));
  if (!presets_) return databases;
  if (const std::string_view off = presets_switched_off(); !off.empty())
    warn(fmt::format("--presets shows nothing: {}", off));
  for (std::shared_ptr<TuningDatabase>& shipped : open_shipped_databases(output))
    databases.push_back(std::move(shipped));
  return databases;
}

std::string ConfigOptions::hint_of_presets(const std::function<std::size_t(const TuningDatabase&)>& count) const {
  if (presets_) return "";
  std::size_t problems = 0;
  for (const auto& database : open_system_databases()) problems += count(*database);
  if (problems == 0) return "";
  return fmt::format("; --presets shows what is shipped ({} problem{})", problems, problems == 1 ? "" : "s");
}

std::shared_ptr<TunedConfigs> ConfigOptions::open_tuned_configs(const OutputOptions& output) const {
  std::shared_ptr<TuningDatabase> user;
  if (!database_.empty()) {
    user = open_existing_database(output);
  } else if (database_exists()) {
    user = open_for_reading();
    say_notes(*user, output);
  }
  return std::make_shared<TunedConfigs>(std::move(user), open_shipped_databases(output));
}

ConfigChoice ConfigOptions::pick(const AttentionProblem& problem, const DeviceSpec& device, TunedConfigs* tuned) const {
  if (config_ == kTuned) {
    if (std::optional<ConfigChoice> found = tuned ? tuned->find_exact(problem, device) : std::nullopt) return *found;
    throw NothingFound(fmt::format("--config {}: nothing was tuned for \"{}\" on {}; `{}` does that", kTuned,
                                   canonical_text(problem), device.name, tune_command(problem)));
  }
  if (given()) {
    const KernelConfig config = parse_config(config_);
    const std::vector<std::string> reasons = infeasibility(problem, config, device);
    if (!reasons.empty()) {
      throw Error(
          ErrorCode::infeasible_config,
          fmt::format("--config \"{}\" does not fit \"{}\" on {}: {}. `attune show space` lists configs that fit",
                      canonical_text(config), canonical_text(problem), device.key, fmt::join(reasons, "; ")));
    }
    return {config, ConfigOrigin::given, "", ""};
  }
  if (tuned) {
    if (const std::optional<ConfigChoice> found = tuned->find(problem, device)) return *found;
  }
  return {default_config(problem, device), ConfigOrigin::default_config, "", tune_command(problem), ConfigBasis::model};
}

std::string describe_origin(const ConfigChoice& choice) {
  return choice.detail.empty() ? std::string(to_string(choice.origin))
                               : fmt::format("{} ({})", to_string(choice.origin), choice.detail);
}

std::string where_to_measure(const ChosenDevice& device) {
  return device.is_cuda() ? "" : fmt::format("   (with an {})", device.spec.name);
}

void print_origin(const ConfigChoice& choice, const ChosenDevice& device) {
  print_field("origin", describe_origin(choice));
  if (!choice.tune_command.empty()) print_field("to tune it", choice.tune_command + where_to_measure(device));
}

}  // namespace attune::cli
