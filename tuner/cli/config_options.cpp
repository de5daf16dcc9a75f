#include "tuner/cli/config_options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
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
  // The system's is looked at, too.
  std::error_code ignored;
  const bool shipped = std::filesystem::equivalent(database_path(), system_database_path(), ignored);
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

std::shared_ptr<TunedConfigs> ConfigOptions::open_tuned_configs(const OutputOptions& output) const {
  std::shared_ptr<TuningDatabase> user, system = open_system_database();
  if (!database_.empty()) {
    user = open_existing_database(output);
  } else if (database_exists()) {
    user = open_for_reading();
    say_notes(*user, output);
  }
  if (system) {
    for (const std::string& note : system->notes()) warn(note);
    output.say(fmt::format("system database {}", system->path().string()));
  }
  return std::make_shared<TunedConfigs>(std::move(user), std::move(system));
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
  return {default_config(problem, device), ConfigOrigin::default_config, "", tune_command(problem)};
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
