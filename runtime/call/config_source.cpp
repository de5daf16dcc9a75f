#include "runtime/call/config_source.h"

namespace attune {

std::string_view to_string(ConfigOrigin origin) {
  switch (origin) {
    case ConfigOrigin::given:
      return "given";
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

std::string tune_command(const AttentionProblem& problem) {
  return "attune tune --problem \"" + canonical_text(problem) + "\"";
}

}  // namespace attune
