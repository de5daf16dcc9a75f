#pragma once

#include <string>
#include <vector>

#include "runtime/call/config_source.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/cli/output.h"
#include "tuner/database/measurement.h"

namespace attune::cli {

/// What `run --check` and `check` say about the outputs: {"o": {"relative", "max_abs", ...}, "lse": {...}},
/// or of "dq", "dk" and "dv".
Json to_json(const std::vector<OutputErrors>& outputs);
void print_errors(const std::vector<OutputErrors>& outputs);

Json to_json(const Measurement& measurement);
/// ", 412.0 us at 8 times the spread" for a row that was timed with wide scores, too; else "".
std::string describe_wide(const Measurement& measurement);
/// "512.3 us  430.1 TFLOP/s  sm80 q128 ...", or the status and the reason.
std::string describe(const Measurement& measurement);

/// Adds config, origin and, where there is one, origin_detail.
void add_choice(Json& document, const ConfigChoice& choice);

}  // namespace attune::cli
