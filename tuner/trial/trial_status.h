#pragma once

#include <optional>

#include "generator/error.h"
#include "tuner/database/measurement.h"

namespace attune {

/// What an exception says about a config: its status; nothing if it says nothing about the config (the environment is
/// at fault).
std::optional<MeasurementStatus> status_of(const Error& error);

}  // namespace attune
