#include <cstdlib>

#include "tuner/database/embedded_presets.h"
#include "tuner/database/system_database.h"

namespace attune {

namespace fs = std::filesystem;

fs::path system_database_path() {
  const char* const named = std::getenv("ATTUNE_SYSTEM_DATABASE");
  return named == nullptr ? fs::path() : fs::path(named);
}

std::string_view presets_switched_off() {
  const char* const named = std::getenv("ATTUNE_SYSTEM_DATABASE");
  return named != nullptr && *named == 0 ? "ATTUNE_SYSTEM_DATABASE is set and empty, which switches them off" : "";
}

std::shared_ptr<TuningDatabase> open_system_database() {
  if (std::getenv("ATTUNE_SYSTEM_DATABASE") == nullptr)
    return TuningDatabase::open_embedded(embedded_presets(), "shipped presets");
  const fs::path path = system_database_path();
  return path.empty() ? nullptr : TuningDatabase::open_shipped(path);
}

}  // namespace attune
