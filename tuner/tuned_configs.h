#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/config_source.h"
#include "tuner/tuning_database.h"

namespace attune {

/// Picks from what was tuned: a user's own database over the system's, which was shipped. Either may be null. In order:
///
///   1. exact: this problem (its scale and layout aside) on this GPU; a device is known by name and number of SMs.
///   2. nearest shape: the nearest tuned one on this GPU, at the distance of TuningDatabase::near().
///   3. nearest device: the same on another GPU of the same compute capability, the one whose number of SMs differs
///      least, then whose nominal clock does, then by name; the exact problem before other shapes. A GPU whose name
///      find_device_by_name() does not know has no known capability, unless it is the asked one's name with another
///      number of SMs.
///
/// On each level the user's rows come before the system's, and all of this for measured rows before any estimate. Only
/// configs that are feasible for the asked problem on the asked device count. The detail of an answer names the problem
/// (and device) that it was tuned for, its time or "by the cost model", and whose database it came from.
///
/// The first look at a problem reads the databases; the answer is kept until one of them stores rows through the object
/// given here. Rows of other processes are seen by objects that are made later. A database that fails meanwhile is a
/// miss. Thread-safe.
class TunedConfigs final : public ConfigSource {
 public:
  TunedConfigs(std::shared_ptr<TuningDatabase> user, std::shared_ptr<TuningDatabase> system);

  /// The databases at their places: default_path() if there is a file (none is created) and open_system_database().
  static std::shared_ptr<TunedConfigs> at_default_places();

  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                   const std::vector<KernelConfig>& passed_over = {}) override;

  const std::shared_ptr<TuningDatabase>& user() const { return user_; }
  const std::shared_ptr<TuningDatabase>& system() const { return system_; }

 private:
  std::optional<ConfigChoice> look_up(const AttentionProblem& problem, const DeviceSpec& device,
                                      const std::vector<KernelConfig>& passed_over) const;
  std::uint64_t generation() const;

  const std::shared_ptr<TuningDatabase> user_, system_;
  std::mutex mutex_;  // guards what follows
  std::uint64_t seen_generation_ = 0;
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
/// at_default_places(). For programs that link the C++ library; before their first call.
void use_tuned_configs();

}  // namespace attune
