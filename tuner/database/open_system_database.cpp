#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "tuner/database/embedded_presets.h"
#include "tuner/database/system_database.h"

namespace attune {

namespace fs = std::filesystem;

namespace {

// What $ATTUNE_SYSTEM_DATABASE lists, each once; that it is not set says the presets.
std::vector<std::string> named_layers() {
  const char* const set = std::getenv("ATTUNE_SYSTEM_DATABASE");
  std::string_view left = set == nullptr ? kPresetsName : set;
  std::vector<std::string> named;
  while (!left.empty()) {
    const std::string_view name = left.substr(0, left.find(':'));
    if (!name.empty() && std::find(named.begin(), named.end(), name) == named.end()) named.emplace_back(name);
    left.remove_prefix(std::min(left.size(), name.size() + 1));
  }
  return named;
}

}  // namespace

std::vector<fs::path> system_database_paths() {
  std::vector<fs::path> paths;
  for (std::string& name : named_layers())
    if (name != kPresetsName) paths.emplace_back(std::move(name));
  return paths;
}

std::string_view presets_switched_off() {
  return named_layers().empty() ? "ATTUNE_SYSTEM_DATABASE is set and empty, which switches them off" : "";
}

DatabaseLayers open_system_databases() {
  DatabaseLayers layers;
  for (const std::string& name : named_layers()) {
    layers.push_back(name == kPresetsName ? TuningDatabase::open_embedded(embedded_presets(), "shipped presets")
                                          : TuningDatabase::open_shipped(name));
  }
  return layers;
}

std::shared_ptr<TuningDatabase> join_databases(const DatabaseLayers& databases, const std::string& name) {
  std::vector<Measurement> rows;
  for (const auto& database : databases) {
    for (const TuningDatabase::Entry& entry : database->list()) {
      std::vector<Measurement> found = database->find_all(entry.problem, entry.device, entry.sm_count);
      std::move(found.begin(), found.end(), std::back_inserter(rows));
    }
  }
  return TuningDatabase::open_image(system_database_image(rows), name);
}

}  // namespace attune
