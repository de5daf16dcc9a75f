#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "generator/attention_problem.h"
#include "generator/device_spec.h"
#include "generator/kernel_config.h"

namespace attune {

/// Where a config came from.
enum class ConfigOrigin { given, exact, nearest_shape, nearest_device, default_config };
std::string_view to_string(ConfigOrigin origin);  ///< "given", "exact", "nearest shape", "nearest device", "default"

struct ConfigChoice {
  KernelConfig config;
  ConfigOrigin origin = ConfigOrigin::default_config;
  std::string detail;  ///< for people: the problem or device that it was tuned for
};

/// What the runtime asks for a config. find() is quick, never launches, never throws for a missing entry, and is
/// thread-safe.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  virtual std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device) = 0;
};

}  // namespace attune
