#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"
#include "runtime/call/config_source.h"
#include "tuner/cli/command_line.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/output.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

namespace attune::cli {

/// --config and --database: where a config comes from.
class ConfigOptions {
 public:
  void add_config_to(CommandLine& verb);
  void add_database_to(CommandLine& verb);

  /// --presets, for verbs that read rows and pick nothing.
  void add_presets_to(CommandLine& verb);

  std::filesystem::path database_path() const;
  /// Opens the database, creating it if need be, and shows its notes on stderr. Throws Error(database) if it cannot
  /// take results.
  std::shared_ptr<TuningDatabase> open_writable_database(const OutputOptions& output) const;
  /// Whether there is a database to look at. There need be none at the default place: nothing was tuned yet. Throws
  /// NothingFound if --database names one that is not there.
  bool database_exists() const;
  /// The database for reading, if its file is there, else null. Nothing is created or changed. Shows its notes on
  /// stderr. Throws NothingFound as database_exists(), and Error(database) if what is there cannot be read.
  std::shared_ptr<TuningDatabase> open_existing_database(const OutputOptions& output) const;

  bool presets() const { return presets_; }
  /// The databases whose rows are asked for: that of open_existing_database(), if there is one, and with --presets
  /// those of the system, in the order in which they win. Shows their notes on stderr; throws as
  /// open_existing_database().
  DatabaseLayers open_databases(const OutputOptions& output) const;
  /// Where open_databases() found nothing: "; --presets shows what is shipped (3 problems)", if `count` finds so many
  /// there; "" if it finds none, or they were looked at.
  std::string hint_of_presets(const std::function<std::size_t(const TuningDatabase&)>& count) const;

  /// What picks a config: that database, if its file is there, over the system's. Shows the notes of all on stderr. A
  /// database at the default place that cannot be read is noted and passed over; throws as open_existing_database() for
  /// one that --database names.
  std::shared_ptr<TunedConfigs> open_tuned_configs(const OutputOptions& output) const;

  /// Whether --config says what to take, so that nothing is picked.
  bool given() const { return !config_.empty(); }

  /// The config of --config (with "tuned" the best that was tuned for this very problem, be it by the cost model), else
  /// what a call would use: what is picked, else the default. Throws Error(invalid_argument), Error(infeasible_config)
  /// with the reasons for a given config that does not fit, and NothingFound for "tuned" where nothing was.
  ConfigChoice pick(const AttentionProblem& problem, const DeviceSpec& device, TunedConfigs* tuned) const;

 private:
  std::shared_ptr<TuningDatabase> open_for_reading() const;

  std::string config_, database_;
  bool presets_ = false;
};

/// "default", or "nearest shape (forward bf16 ...)".
std::string describe_origin(const ConfigChoice& choice);

/// Two lines of a report: the origin and, if there is one, the command that would measure configs for the problem, and
/// where.
void print_origin(const ConfigChoice& choice, const ChosenDevice& device);
/// "   (with an NVIDIA H200)" for what has to be done elsewhere; "" where the GPU is here.
std::string where_to_measure(const ChosenDevice& device);

}  // namespace attune::cli
