#include "tuner/cli/report.h"

#include <fmt/core.h>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"
#include "tuner/cli/config_options.h"
#include "tuner/database/measurement_json.h"

namespace attune::cli {

Json to_json(const std::vector<OutputErrors>& outputs) {
  Json document = Json::object();
  for (const OutputErrors& output : outputs) {
    Json entry = {{"relative", output.relative},
                  {"relative_bound", output.relative_bound},
                  {"max_abs", output.max_abs},
                  {"worst_ratio_to_bound", output.worst_ratio},
                  {"within", output.within}};
    if (!output.within) entry["complaint"] = output.complaint;
    document[output.name] = std::move(entry);
  }
  return document;
}

void print_errors(const std::vector<OutputErrors>& outputs) {
  for (const OutputErrors& output : outputs) {
    const std::string bound = output.relative_bound > 0 ? fmt::format(" (bound {:.1e})", output.relative_bound) : "";
    print_field("error of " + output.name,
                fmt::format("relative {:.3e}{}, largest {:.3e}, {:.0f} % of the elementwise bound{}", output.relative,
                            bound, output.max_abs, output.worst_ratio * 100, output.within ? "" : ": NOT WITHIN"));
    if (!output.within) print_field("", output.complaint);
  }
}

Json to_json(const Measurement& measurement) { return measurement_to_json(measurement); }

std::string describe_wide(const Measurement& measurement) {
  return measurement.wide_median_us > 0
             ? fmt::format(", {:.1f} us at {} times the spread", measurement.wide_median_us, kWideSpread)
             : "";
}

std::string describe(const Measurement& measurement) {
  const std::string config = canonical_text(measurement.config);
  if (measurement.status != MeasurementStatus::ok) {
    return fmt::format("{}  {}{}{}", config, to_string(measurement.status), measurement.reason.empty() ? "" : ": ",
                       measurement.reason);
  }
  if (measurement.median_us > 0) {
    return fmt::format("{}  {:.1f} us  {:.1f} TFLOP/s{}", config, measurement.median_us, measurement.tflops(),
                       describe_wide(measurement));
  }
  return fmt::format("{}  correct, not timed (cost model: {:.1f} us)", config, measurement.predicted_us);
}

void add_choice(Json& document, const ConfigChoice& choice) {
  document["config"] = canonical_text(choice.config);
  document["origin"] = to_string(choice.origin);
  if (!choice.detail.empty()) document["origin_detail"] = choice.detail;
  if (!choice.tune_command.empty()) document["tune_command"] = choice.tune_command;
}

}  // namespace attune::cli
