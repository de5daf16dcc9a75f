#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tuner/database/database_label.h"
#include "tuner/database/measurement.h"

namespace attune {

/// Error(database): rows that were not stored, by their own fault or by the database's.
class NotStored : public Error {
 public:
  enum class Fault {
    row,      ///< it breaks a rule of the tables: another row may be stored
    database  ///< locked, full, read-only: no row can be stored for now
  };
  NotStored(Fault fault, const std::string& message) : Error(ErrorCode::database, message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

/// Append-only measurements in SQLite; "best" is a query. Safe under several processes (WAL where the file system
/// allows it, busy timeout, BEGIN IMMEDIATE), in a process that forks (no connection is open meanwhile, and parent and
/// child open their own), and thread-safe. TunedConfigs picks from several of them.
///
/// Opening never throws, and changes nothing that was not once a tuning database. For writing a missing file is created
/// (its folder too) and an older schema migrated; a corrupt tuning database is renamed to NAME.corrupt-TIMESTAMP and a
/// fresh one is begun; one with a newer schema, or that cannot be written, is read. Text, another program's database, a
/// folder, a dangling link, and tables that are not as Attune makes them are left alone and stand as an empty read-only
/// database. For reading nothing is created, renamed or changed at all; what cannot be read stands as an empty one.
/// Each of these leaves a sentence in notes().
class TuningDatabase {
 public:
  /// $ATTUNE_DATABASE, else $XDG_DATA_HOME/attune/tuning.db, else $HOME/.local/share/attune/tuning.db; empty if none of
  /// them is set.
  static std::filesystem::path default_path();

  /// Opened for writing.
  explicit TuningDatabase(std::filesystem::path path = default_path());
  /// Opened for reading: what others have stored meanwhile is seen by each call.
  static std::shared_ptr<TuningDatabase> open_for_reading(std::filesystem::path path);
  /// A database that was shipped (see system_database.h): opened immutable, never written, replaced or migrated. One
  /// that cannot be read stands as an empty one and leaves a sentence in notes().
  static std::shared_ptr<TuningDatabase> open_shipped(std::filesystem::path path);
  /// The same of bytes that are part of the program and outlive it; `name` stands for its path.
  static std::shared_ptr<TuningDatabase> open_embedded(std::string_view image, const std::string& name);
  /// The same of bytes that it keeps.
  static std::shared_ptr<TuningDatabase> open_image(std::string image, const std::string& name);
  ~TuningDatabase();

  /// Durable when it returns; an empty created_at becomes the time of the call, and the row gets the sequence that
  /// makes it the newest (that of its race, if rows of the race are here). One that is stored already, its sequence
  /// aside, is not stored twice. Throws NotStored if nothing can be written (read-only, locked, disk full) or the row
  /// cannot be, naming the file and the cause; what was stored before stays, and a later call may succeed.
  void append(const Measurement& measurement);
  /// The same of several rows, as those of a race: all of them or, if it throws, none.
  void append(const std::vector<Measurement>& measurements);

  struct Appended {
    std::int64_t added = 0, known = 0;
  };
  /// Rows of elsewhere, which keep their created_at and sequence: all of them or, if it throws, none. A sequence beyond
  /// kGreatestForeignSequence is refused. Otherwise throws as append().
  Appended append_all(const std::vector<Measurement>& measurements);

  /// What follows is of the problem with the simplest_mask(), in whatever spelling its rows are stored. It passes over
  /// rows that were changed after they were stored (their content hash says so) and those of which impossibility() says
  /// something, and where one is chosen also over those of error_beyond_bounds(); each is told to the log once. Newer
  /// is as is_newer() says: the order in which databases were merged changes no answer.
  ///
  /// All rows of a problem and device, oldest first.
  std::vector<Measurement> find_all(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// The newest row of each config, any status.
  std::vector<Measurement> latest(const AttentionProblem& problem, const std::string& device, int sm_count) const;
  /// Each config stands for itself by the newest row of its highest rigor; of those that are `ok` and have a time, the
  /// first by ranks_before(): highest rigor, then the newest race and the place in it, then fastest, then canonical
  /// config text. Estimates are ranked by the prediction.
  std::optional<Measurement> best(const AttentionProblem& problem, const std::string& device, int sm_count) const;

  /// A problem that a database has rows of, beside one that is asked for.
  struct TunedShape {
    std::string problem;  ///< its canonical text; one of a newer version may have features that this one cannot read
    std::string device;
    int sm_count = 0;
    bool same_problem = false;  ///< the asked one, its scale and layout aside
    double distance = 0;        ///< as near() says; 0 also between problems that differ in a mask's offset alone
  };
  /// Every shape with the same pass, mask kind and alignment, on any device, at the distance
  ///   0.35  (|log2(sq / sq')| + |log2(skv / skv')|)    s: a length, at least 32 and at most 4096: what chooses a tile
  ///   0.025 (|log2(Sq / Sq')| + |log2(Skv / Skv')|)    beyond that it matters little
  ///   1.5   |log2(w / w')|                             w = B Hq Sq / (128 SMs): tiles of 128 queries for each SM, at
  ///                                                    least 0.1 and at most 64
  ///   0.4   |D - D'| / 8
  ///   0.3   |log2(g / g')|                             g = Hq / Hkv
  ///   0.2   if the dtype is another: both have 16 bits and the same rate
  ///   feature_distance(): what problem_fields() say of features
  /// for `sm_count` SMs of the device that is asked for. Fitted on 300 shapes that were tuned on an H200, each left out
  /// in turn, and 30 others, so that what won in the nearest ones is fast in the asked one (docs/notebook/search.md).
  /// The same problem comes first, then the nearest, ties by canonical text (the asked one's own first) and device.
  std::vector<TunedShape> near(const AttentionProblem& problem, int sm_count) const;
  enum class RowUse {
    take,
    pass_over,  ///< the next one, if there is one
    leave_out   ///< as if it was not stored: an older row of its config may stand in its place
  };
  /// The first row of each shape, in the order of best(), that is taken; none where there is none. `use` is also asked
  /// about a failure that keeps an older row of its config from standing: it may be left out, but is never taken. `use`
  /// must not use this database; it may be asked about a row several times.
  std::vector<std::optional<Measurement>> first_of(const std::vector<TunedShape>& shapes,
                                                   const std::function<RowUse(const Measurement&)>& use) const;

  /// What best() says of the nearest other shapes that were tuned on this device, as near() has them, nearest
  /// first: each config once, at most `count`. Whether they fit this problem is not looked into.
  std::vector<KernelConfig> winners_of_neighbours(const AttentionProblem& problem, const std::string& device,
                                                  int sm_count, int count) const;

  struct Entry {
    AttentionProblem problem;
    std::string device;
    int sm_count = 0;
    std::int64_t rows = 0, ok = 0;
    std::int64_t raced = 0;  ///< rows that come from a final race of several configs
  };
  std::vector<Entry> list() const;  ///< every problem and device with a row, by canonical text

  /// A config that could be picked for a problem on a device, with what tells whether it is of now.
  struct Ranked {
    std::string problem;  ///< its canonical text
    std::string device;
    int sm_count = 0;
    std::string config;  ///< its canonical text
    bool estimate = false;
    std::string source_hash, compiler, attune_version;
    friend bool operator==(const Ranked&, const Ranked&) = default;
  };
  /// All of them on the devices that are `wanted`, by problem and device, those of one problem and device in the order
  /// of best(): of each config, source, compiler and version the row that would stand if there were no others. `wanted`
  /// must not use this database.
  std::vector<Ranked> ranked(const std::function<bool(const std::string& device, int sm_count)>& wanted) const;

  /// How often this object has stored rows: answers that were derived from an earlier count may be old.
  std::uint64_t generation() const;

  bool read_only() const;
  /// Why it stands as an empty database although it was to be read; empty if it is what the file holds.
  const std::string& unreadable_because() const;
  const std::filesystem::path& path() const;
  /// What one that was shipped is called; empty of any other, and of one that was given no label.
  const DatabaseLabel& label() const;
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  explicit TuningDatabase(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attune
