#include "runtime/call/config_source.h"

#include <cstdlib>

#include "generator/error.h"

namespace attune {

std::string_view to_string(ConfigOrigin origin) {
  switch (origin) {
    case ConfigOrigin::given:
      return "given";
    case ConfigOrigin::packed:
      return "pack";
    case ConfigOrigin::exact:
      return "exact";
    case ConfigOrigin::nearest_shape:
      return "nearest shape";
    case ConfigOrigin::nearest_device:
      return "nearest device";
    case ConfigOrigin::default_config:
      return "default";
  }
  return "unknown";
}

std::string_view to_string(ConfigBasis basis) {
  switch (basis) {
    case ConfigBasis::measured:
      return "measured";
    case ConfigBasis::borrowed:
      return "borrowed";
    case ConfigBasis::model:
      return "model";
    case ConfigBasis::unknown:
      break;
  }
  return "unknown";
}

std::string tune_command(const AttentionProblem& problem) {
  return "attune tune --problem \"" + canonical_text(problem) + "\"";
}

std::string pack_command(const AttentionProblem& problem, const DeviceSpec& device) {
  // A GPU that is not known by its name is packed for where it is.
  const std::optional<DeviceSpec> known = find_device_by_name(device.name);
  return "attune pack " + (known ? "--target " + known->key : "--device cuda:0") + " --problem \"" +
         canonical_text(problem) + "\" --output FILE";
}

bool frozen_by_environment() {
  const char* const set = std::getenv("ATTUNE_FROZEN");
  const std::string_view value = set == nullptr ? "" : set;
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw Error(ErrorCode::invalid_argument, "ATTUNE_FROZEN is '" + std::string(value) + "': set it to 1, or unset it");
}

}  // namespace attune
