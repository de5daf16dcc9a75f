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

/// Append-only measurements in SQLite; "best" is a query. Safe under several processes (WAL where the file system
/// allows it, busy timeout, BEGIN IMMEDIATE). As a ConfigSource it answers from memory after the first look at a
/// problem.
///
/// Opening never throws: a missing file is created (its folder too); a corrupt one is renamed to NAME.corrupt-TIMESTAMP
/// and a fresh one is begun; one with a newer schema, or that cannot be written, opens read-only; one that cannot be
/// opened at all, or that belongs to another program, is left alone and stands as an empty read-only database. Each of
/// these leaves a sentence in notes().
class TuningDatabase : public ConfigSource {
 public:
  /// $ATTUNE_DATABASE, else $XDG_DATA_HOME/attune/tuning.db, else $HOME/.local/share/attune/tuning.db; empty if none of
  /// them is set.
  static std::filesystem::path default_path();

  explicit TuningDatabase(std::filesystem::path path = default_path());
  ~TuningDatabase() override;

  /// Durable when it returns; an empty created_at becomes the time of the call. A row that is stored already (equal in
  /// every field) is not stored twice. Throws Error(database) if nothing can be written (read-only, disk full), naming
  /// the file and the cause; what was stored before stays.
  void append(const Measurement& measurement);

  struct Appended {
    std::int64_t added = 0, known = 0;
  };
  /// All of them or, if it throws, none: one transaction. Each has its created_at already. Throws as append().
  Appended append_all(const std::vector<Measurement>& measurements);

  /// All rows of a problem and device, oldest first. Age is created_at, then the order of storing: a row that was
  /// merged from another machine is as old as it was there.
  std::vector<Measurement> find_all(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// The newest row of each config, any status.
  std::vector<Measurement> latest(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// Each config stands for itself by the newest row of its highest rigor; of those that are `ok` and have a time, the
  /// first by ranks_before(): highest rigor, then the newest race and the place in it, then fastest, then canonical
  /// config text. Estimates are ranked by the prediction.
  std::optional<Measurement> best(const AttentionProblem& problem, const std::string& device, int sm_count) const;

  /// What best() says of the nearest other shapes that were tuned on this device, at the distance of find(), nearest
  /// first: each config once, at most `count`. Whether they fit this problem is not looked into.
  std::vector<KernelConfig> winners_of_neighbours(const AttentionProblem& problem, const std::string& device,
                                                  int sm_count, int count) const;

  struct Entry {
    AttentionProblem problem;
    std::string device;
    int sm_count = 0;
    std::int64_t rows = 0, ok = 0;
  };
  std::vector<Entry> list() const;  ///< every problem and device with a row, by canonical text

  /// The best row of this problem (its scale and layout aside) on this device; else of the nearest tuned shape with the
  /// same pass, dtype, head_dim, mask kind and alignment, at the distance
  ///   |log2(Sq/Sq')| + |log2(Skv/Skv')| + |log2(B Hq / B' Hq')| + |log2(group/group')|,
  /// ties by canonical text. Only configs that are feasible for the asked problem count. Measured rows come before
  /// estimates whatever the distance; the detail of an answer from estimates says "by the cost model". A device is
  /// known by name and number of SMs.
  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device) override;

  bool read_only() const;
  const std::filesystem::path& path() const;
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
