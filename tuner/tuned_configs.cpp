#include "tuner/tuned_configs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/system_database.h"

namespace attune {
namespace {

using TunedShape = TuningDatabase::TunedShape;

// Where rows may be found, in the order of looking.
struct Place {
  const TuningDatabase* database = nullptr;
  const char* whose = "";
  int layer = 0;  // 0 is looked at first
  TunedShape shape;
  ConfigOrigin origin = ConfigOrigin::exact;
  int sm_difference = 0, clock_difference = 0;  // of another device

  bool operator<(const Place& other) const { return key() < other.key(); }

 private:
  std::tuple<ConfigOrigin, int, int, int, std::string_view> key() const {
    std::string_view other_device;
    if (origin == ConfigOrigin::nearest_device) other_device = shape.device;
    return {origin, layer, sm_difference, clock_difference, other_device};
  }
};

static_assert(ConfigOrigin::exact < ConfigOrigin::nearest_shape &&
                  ConfigOrigin::nearest_shape < ConfigOrigin::nearest_device,
              "places are sorted by it");

// The place of a shape on the device that is asked for, or on one of its family; none on any other.
std::optional<Place> place_of(TunedShape shape, const DeviceSpec& asked) {
  Place place;
  if (shape.device == asked.name && shape.sm_count == asked.sm_count) {
    place.origin = shape.same_problem ? ConfigOrigin::exact : ConfigOrigin::nearest_shape;
  } else {
    DeviceSpec other = asked;
    if (shape.device != asked.name) {
      const std::optional<DeviceSpec> known = find_device_by_name(shape.device);
      if (!known || known->compute_major != asked.compute_major || known->compute_minor != asked.compute_minor)
        return std::nullopt;
      other = *known;
    }
    place.origin = ConfigOrigin::nearest_device;
    place.sm_difference = std::abs(shape.sm_count - asked.sm_count);
    place.clock_difference = std::abs(other.clock_mhz - asked.clock_mhz);
  }
  place.shape = std::move(shape);
  return place;
}

std::string describe(const Place& place, const Measurement& row) {
  std::string text;
  if (place.origin == ConfigOrigin::nearest_device)
    text = fmt::format("{} with {} SMs: ", place.shape.device, place.shape.sm_count);
  text += place.shape.problem;
  if (!place.shape.same_problem) text += fmt::format(", at distance {:.2f}", place.shape.distance);
  text += row.rigor == Rigor::estimate ? ", by the cost model" : fmt::format(", {:.1f} us", row.median_us);
  return fmt::format("{}, {} database", text, place.whose);
}

}  // namespace

TunedConfigs::TunedConfigs(std::shared_ptr<TuningDatabase> user, std::shared_ptr<TuningDatabase> system)
    : user_(std::move(user)), system_(std::move(system)), seen_generation_(generation()) {}

std::shared_ptr<TunedConfigs> TunedConfigs::at_default_places() {
  const std::filesystem::path path = TuningDatabase::default_path();
  std::error_code error;
  std::shared_ptr<TuningDatabase> user;
  if (!path.empty() && std::filesystem::exists(path, error)) user = std::make_shared<TuningDatabase>(path);
  return std::make_shared<TunedConfigs>(std::move(user), open_system_database());
}

std::uint64_t TunedConfigs::generation() const {
  return (user_ ? user_->generation() : 0) + (system_ ? system_->generation() : 0);
}

std::optional<ConfigChoice> TunedConfigs::find(const AttentionProblem& problem, const DeviceSpec& device,
                                               const std::vector<KernelConfig>& passed_over) {
  try {
    // Asked for only after a pick has failed, which is rare and slow already: not kept.
    if (!passed_over.empty()) return look_up(problem, device, passed_over);
    const std::lock_guard lock(mutex_);
    if (const std::uint64_t now = generation(); now != seen_generation_) {
      answers_.clear();
      seen_generation_ = now;
    }
    const Question question{problem, device};
    const auto known = answers_.find(question);
    if (known != answers_.end()) return known->second;
    return answers_.emplace(question, look_up(problem, device, {})).first->second;
  } catch (const Error&) {
    return std::nullopt;  // locked, or damaged meanwhile: the next call asks again
  }
}

std::optional<ConfigChoice> TunedConfigs::look_up(const AttentionProblem& problem, const DeviceSpec& device,
                                                  const std::vector<KernelConfig>& passed_over) const {
  std::vector<Place> places;
  const auto look_at = [&](const TuningDatabase* database, int layer, const char* whose) {
    if (database == nullptr) return;
    for (TunedShape& shape : database->near(problem)) {
      std::optional<Place> place = place_of(std::move(shape), device);
      if (!place) continue;
      place->database = database;
      place->layer = layer;
      place->whose = whose;
      places.push_back(std::move(*place));
    }
  };
  look_at(user_.get(), 0, "user");
  look_at(system_.get(), 1, "system");
  std::stable_sort(places.begin(), places.end());  // near() has sorted what is equal here

  std::optional<ConfigChoice> estimate;
  for (const Place& place : places) {
    for (const Measurement& row :
         place.database->ranked(place.shape.problem, place.shape.device, place.shape.sm_count)) {
      const bool estimated = row.rigor == Rigor::estimate;
      if (estimated && estimate) continue;
      if (std::find(passed_over.begin(), passed_over.end(), row.config) != passed_over.end()) continue;
      if (!infeasibility(problem, row.config, device).empty()) continue;
      ConfigChoice choice{row.config, place.origin, describe(place, row), ""};
      if (estimated || place.origin != ConfigOrigin::exact) choice.tune_command = tune_command(problem);
      if (!estimated) return choice;
      estimate = std::move(choice);
    }
  }
  return estimate;
}

void use_tuned_configs() { set_default_config_source(TunedConfigs::at_default_places()); }

}  // namespace attune
