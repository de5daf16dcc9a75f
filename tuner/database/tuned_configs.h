#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/call/config_source.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"
#include "tuner/database/current_build.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

namespace attune {

/// Picks from what was tuned: a user's own database over the system's, which were shipped, the earlier of these over
/// the later. In order:
///
///   1. exact: this problem (its scale and layout aside) on this GPU; a device is known by name and number of SMs. Rows
///      of the kernel that runs now before stale ones (current_build.h): first those that this compiler and this
///      version of Attune measured, then the others. Of equals those of the earlier database.
///   2. nearest shape: of what the nearest tuned shapes on this GPU offer, those of all databases in one list by the
///      distance of TuningDatabase::near(), the earlier database's first where they are as near. A shape offers its
///      best config that fits, without `even-tiles` where only that does not; the nearest 40 shapes count, and the
///      default config. The answer is that with the least
///          time that the cost model expects * exp(0.2 (1 - exp(-distance)))      (of the default config: * exp(0.2))
///      for the model tells tiles apart but not every detail, and what is tuned nearby has the details right. Stale
///      rows of another kernel give way to the best of the others, unless that takes over 1.1 times as long by the same
///      measure. Where the default config wins, the origin says so.
///   3. nearest device: the same on another GPU of the same compute capability, the one whose number of SMs differs
///      least, then whose nominal clock does, then by name; the exact problem before other shapes, and any GPU of
///      an earlier database before those of a later one; of one problem the stale rows last. A GPU whose name
///      find_device_by_name() does not know has no known capability, unless it is the asked one's name with another
///      number of SMs.
///
/// All of this for measured rows before any estimate. Only configs that are feasible for the asked problem on the asked
/// device count. The detail of an answer names the problem (and device) that it was tuned for, its time or "by the cost
/// model", whose database it came from, and of a stale row what is another now, which is also told to log() as info; of
/// a default config, the nearest of what it won against; and an estimate for this very problem that it was preferred
/// to. Rows whose recorded error is beyond its bound never count (impossibility()).
///
/// The first look at a problem reads the databases, and generates the kernels of the few rows that may be picked, some
/// milliseconds each, to tell which are stale; the answer is kept until one of them stores rows through the
/// object given here. Rows of other processes are seen by objects that are made later. A database that fails meanwhile
/// is a miss, and is told to log() once. Thread-safe.
class TunedConfigs final : public ConfigSource {
 public:
  /// `user` may be null. `build`: what runs now; null: CurrentBuild::of_process(), from the first find() on.
  explicit TunedConfigs(std::shared_ptr<TuningDatabase> user, DatabaseLayers system = {},
                        std::shared_ptr<const CurrentBuild> build = nullptr);

  /// The databases at their places: default_path() if there is a file (none is created) and open_system_databases().
  static std::shared_ptr<TunedConfigs> at_default_places();

  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                   const std::vector<KernelConfig>& passed_over = {}) override;

  /// The best that was tuned for this very problem on this GPU (1. above), measured before estimates, even where find()
  /// prefers what was measured for other shapes to an estimate. Throws Error(database).
  std::optional<ConfigChoice> find_exact(const AttentionProblem& problem, const DeviceSpec& device) const;

  /// One of the databases, which win in the order of layers().
  struct Layer {
    std::shared_ptr<TuningDatabase> database;
    bool of_system = false;
    /// For people: "user database"; "system database site-h200 2026.11" by its label, by its path where it has none and
    /// others are beside it; "presets 0.1.0".
    std::string title;
  };
  const std::vector<Layer>& layers() const { return layers_; }
  const std::shared_ptr<TuningDatabase>& user() const { return user_; }  ///< null if there is none
  const CurrentBuild& build() const;

 private:
  enum class Extent { exact, all };
  struct Answer {
    std::optional<ConfigChoice> choice;
    std::string stale;  // why, if the choice is
  };
  Answer look_up(const AttentionProblem& problem, const DeviceSpec& device,
                 const std::vector<KernelConfig>& passed_over, Extent extent = Extent::all) const;
  std::uint64_t generation() const;

  const std::shared_ptr<TuningDatabase> user_;
  const std::vector<Layer> layers_;
  const std::shared_ptr<const CurrentBuild> build_;  // null: that of the process
  ActivityMutex looking_up_;
  StateMutex mutex_;  // guards what follows
  std::uint64_t seen_generation_ = 0;
  std::set<std::string> told_;  // what was wrong with a database, once each
  struct Question {
    AttentionProblem problem;
    DeviceSpec device;
    friend bool operator==(const Question&, const Question&) = default;
  };
  struct QuestionHash {
    std::size_t operator()(const Question& question) const { return AttentionProblemHash()(question.problem); }
  };
  std::unordered_map<Question, std::optional<ConfigChoice>, QuestionHash> answers_;
};

/// Makes calls of this process pick from what was tuned, as libattune does by itself: set_default_config_source() with
/// PackedConfigs (packed_configs.h) over at_default_places(), and the packs that $ATTUNE_PACK names loaded. For
/// programs that link the C++ library; before their first call. Throws Error that says what to do for a pack that
/// cannot be used, and for a value of $ATTUNE_FROZEN that has no meaning.
void use_tuned_configs();

}  // namespace attune
