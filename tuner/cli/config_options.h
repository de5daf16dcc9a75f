#pragma once

#include <memory>
#include <optional>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"
#include "runtime/call/config_source.h"
#include "tuner/cli/command_line.h"
#include "tuner/cli/output.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

namespace attune::cli {

/// --config and --database: where a config comes from.
class ConfigOptions {
 public:
  void add_config_to(CommandLine& verb);
  void add_database_to(CommandLine& verb);

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

  /// What picks a config: that database, if its file is there, over the system's. Shows the notes of both on stderr. A
  /// database at the default place that cannot be read is noted and passed over; throws as open_existing_database() for
  /// one that --database names.
  std::shared_ptr<TunedConfigs> open_tuned_configs(const OutputOptions& output) const;

  /// The config of --config, if there is one. Throws Error(invalid_argument).
  std::optional<KernelConfig> given() const;

  /// What a call would use: the given config, else what the source picks, else the default. Throws
  /// Error(infeasible_config) with the reasons for a given config that does not fit.
  ConfigChoice pick(const AttentionProblem& problem, const DeviceSpec& device, ConfigSource* source) const;

 private:
  std::shared_ptr<TuningDatabase> open_for_reading() const;

  std::string config_, database_;
};

/// "default", or "nearest shape (forward bf16 ...)".
std::string describe_origin(const ConfigChoice& choice);

/// Two lines of a report: the origin and, if there is one, the command that would tune the problem.
void print_origin(const ConfigChoice& choice);

}  // namespace attune::cli
