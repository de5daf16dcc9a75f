#pragma once

#include <nlohmann/json_fwd.hpp>

#include "generator/device/device_spec.h"
#include "tuner/database/measurement.h"
#include "tuner/trial/trial.h"

namespace attune {

/// What version 0.1 wrote in place of "source_hash"; it is read as a hash of templates (kTemplatesMark).
inline constexpr const char* kTemplatesHash = "templates_hash";

/// Problem and config as canonical texts, quantities with their unit in the name; NaN and infinities as "nan", "inf",
/// "-inf"; race and place only of a row that was raced, wide times only of one that has some, of a
/// node what is known. Used by --json and by the
/// worker protocol: what one writes the other reads back, equal in every field.
nlohmann::json measurement_to_json(const Measurement& measurement);
/// What is known of it, as fields of a measurement.
nlohmann::json node_gpu_to_json(const NodeGpu& node);
/// Other fields are passed over. Throws Error(invalid_argument).
NodeGpu node_gpu_from_json(const nlohmann::json& json);
/// Omitted fields have their default. Throws Error(invalid_argument) that names the field it does not understand.
Measurement measurement_from_json(const nlohmann::json& json);

nlohmann::json device_spec_to_json(const DeviceSpec& spec);
DeviceSpec device_spec_from_json(const nlohmann::json& json);

nlohmann::json trial_options_to_json(const TrialOptions& options);
TrialOptions trial_options_from_json(const nlohmann::json& json);

nlohmann::json race_options_to_json(const RaceOptions& options);
RaceOptions race_options_from_json(const nlohmann::json& json);

}  // namespace attune
