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
enum class ConfigOrigin { given, exact, nearest_shape, nearest_device, default_config };
std::string_view to_string(ConfigOrigin origin);  ///< "given", "exact", "nearest shape", "nearest device", "default"

struct ConfigChoice {
  KernelConfig config;
  ConfigOrigin origin = ConfigOrigin::default_config;
  std::string detail;        ///< for people: the problem or device that it was tuned for, for a default what it was
                             ///< preferred to (if to anything), and what did not compile
  std::string tune_command;  ///< what would measure configs for this very problem; empty if that was done, or if given
};

/// The command that measures configs for a problem: attune tune --problem "forward bf16 ...".
std::string tune_command(const AttentionProblem& problem);

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
};

}  // namespace attune
