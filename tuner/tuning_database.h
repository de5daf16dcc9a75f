#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config_source.h"
#include "tuner/measurement.h"

namespace attune {

/// Append-only measurements in SQLite; "best" is a query. Safe under several processes (WAL where the file system allows it, busy
/// timeout, BEGIN IMMEDIATE). As a ConfigSource it answers from memory after the first look at a problem.
///
/// Opening: a missing file is created (its folder too); a corrupt one is renamed to NAME.corrupt-TIMESTAMP and a fresh one is begun; one
/// with a newer schema, or that cannot be written, opens read-only; each of these leaves a sentence in notes().
class TuningDatabase : public ConfigSource {
 public:
  /// $ATTUNE_DATABASE, else $XDG_DATA_HOME/attune/tuning.db, else ~/.local/share/attune/tuning.db.
  static std::filesystem::path default_path();

  explicit TuningDatabase(std::filesystem::path path = default_path());
  ~TuningDatabase() override;

  /// Durable when it returns. Throws Error(database) if nothing can be written (read-only, disk full), naming the file and the cause.
  void append(const Measurement& measurement);

  /// All rows of a problem and device, oldest first.
  std::vector<Measurement> find_all(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// The newest row of each config, any status.
  std::vector<Measurement> latest(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// The fastest `ok` row among the newest of each config, of the highest rigor present; ties by canonical config text.
  std::optional<Measurement> best(const AttentionProblem& problem, const std::string& device, int sm_count) const;

  struct Entry { AttentionProblem problem; std::string device; int sm_count = 0; std::int64_t rows = 0, ok = 0; };
  std::vector<Entry> list() const;  ///< every tuned problem

  /// Exact problem on this device; else the nearest tuned shape of the same kernel class fields whose config is feasible.
  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device) override;

  bool read_only() const;
  const std::filesystem::path& path() const;
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
