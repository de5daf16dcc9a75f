#include "generator/families/shared/mma_sync.h"

#include <fmt/format.h>

#include "generator/families/family_word.h"

namespace attune {

bool supports_mma_sync(const Question& question, Reasons* reasons) {
  const DeviceSpec& device = question.device;
  if (device.compute_major >= 8) return true;
  reasons->push_back(fmt::format("{} has compute capability {}.{}; family {} needs 8.0 or newer", device.name,
                                 device.compute_major, device.compute_minor, to_string(FamilyWord::sm80)));
  return false;
}

}  // namespace attune
