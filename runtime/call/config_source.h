#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Where a config came from.
enum class ConfigOrigin { given, packed, exact, nearest_shape, nearest_device, default_config };
/// "given", "pack", "exact", "nearest shape", "nearest device", "default"
std::string_view to_string(ConfigOrigin origin);

/// What says that a config is fast here.
enum class ConfigBasis {
  measured,  ///< a time of it on this model of GPU, for this or another problem
  borrowed,  ///< a time of it on another model
  model,     ///< the cost model alone
  unknown,   ///< whoever named it: the caller, or a pack
};
/// "measured", "borrowed", "model", "unknown"
std::string_view to_string(ConfigBasis basis);

struct ConfigChoice {
  KernelConfig config;
  ConfigOrigin origin = ConfigOrigin::default_config;
  std::string detail;        ///< for people: the problem or device that it was tuned for, for a default what it was
                             ///< preferred to (if to anything), how a result is stale, and what did not compile
  std::string tune_command;  ///< what would measure configs for this very problem; empty if that was done and is not
                             ///< stale, or if given
  ConfigBasis basis = ConfigBasis::unknown;
  std::string lender{};  ///< the other model of a borrowed one: "NVIDIA H200 with 132 SMs"; else empty
};

/// The command that measures configs for a problem: attune tune --problem "forward bf16 ...".
std::string tune_command(const AttentionProblem& problem);

/// The command that puts a problem's kernels into a pack for a device:
///
///   attune pack --target h200 --problem "forward bf16 ..." --output FILE
std::string pack_command(const AttentionProblem& problem, const DeviceSpec& device);

/// Whether $ATTUNE_FROZEN is 1; it is not where the variable is not set, empty or 0. Throws Error(invalid_argument) for
/// another value.
bool frozen_by_environment();

/// What the runtime asks for a config. find() is quick, never launches or compiles, never throws for a missing entry,
/// and is thread-safe.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  /// The best choice that is none of `passed_over`: configs that an earlier answer named and that turned out not to
  /// work here. It may be the default config, by its origin too, where that is expected to be faster than what is known
  /// of other problems.
  virtual std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                           const std::vector<KernelConfig>& passed_over = {}) = 0;
  /// Whether calls may use nothing but picks of a pack, exact picks, and kernels of a pack (see kernel_source.h): then
  /// anything else is an error. The same for the life of the object.
  virtual bool frozen() const { return false; }
};

}  // namespace attune
