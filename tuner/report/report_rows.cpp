#include "tuner/report/report_rows.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "generator/config/config_fields.h"
#include "tuner/report/roofline.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// The rows of config_fields(), one for each member; the family stands before them.
std::vector<const ConfigField*> distinct_fields() {
  std::vector<const ConfigField*> fields;
  for (const ConfigField& field : config_fields()) {
    const auto same = [&](const ConfigField* other) { return other->key == field.key; };
    if (std::none_of(fields.begin(), fields.end(), same)) fields.push_back(&field);
  }
  return fields;
}

Json field_values(const KernelConfig& config) {
  Json values = {to_string(config.family)};
  for (const ConfigField* field : distinct_fields()) {
    const int value = field->get(config);
    const std::string_view name = field->name != nullptr ? field->name(value) : std::string_view();
    values.push_back(name.empty() ? Json(value) : Json(name));
  }
  return values;
}

constexpr const char* kColumns[] = {
    "config",   "status",     "reason",      "rigor",        "race",          "place",      "median_us",
    "p20_us",   "p80_us",     "samples",     "predicted_us", "sm_clock_mhz",  "clock_low",  "clock_high",
    "error_o",  "error_lse",  "registers",   "spill_bytes",  "shared_bytes",  "compile_ms", "bound_us",
    "bound_by", "provenance", "source_hash", "created_at",   "wide_median_us"};

}  // namespace

std::size_t ReportProvenances::number_of(const Measurement& row) {
  const Key key(row.compiler, row.driver, row.protocol, row.attune_version);
  const auto [found, added] = numbers_.emplace(key, numbers_.size());
  if (added) {
    list_.push_back({{"compiler", row.compiler},
                     {"driver", row.driver},
                     {"protocol", row.protocol},
                     {"attune_version", row.attune_version}});
  }
  return found->second;
}

std::size_t ReportConfigs::number_of(const KernelConfig& config) {
  const auto [found, added] = numbers_.emplace(canonical_text(config), numbers_.size());
  if (added) list_.push_back({{"text", found->first}, {"fields", field_values(config)}});
  return found->second;
}

Json report_columns() { return kColumns; }

Json report_config_fields() {
  Json fields = {{{"key", "family"}, {"title", "kernel family"}}};
  for (const ConfigField* field : distinct_fields()) fields.push_back({{"key", field->key}, {"title", field->title}});
  return fields;
}

Json report_row(const Measurement& row, const std::optional<DeviceSpec>& spec, ReportRowLists& lists) {
  std::vector<int> clocks;
  for (const int clock : row.clocks_mhz) {
    if (clock > 0) clocks.push_back(clock);
  }
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  Json bound_us = nullptr, bound_by = nullptr;
  if (spec) {
    const Roofline roofline = roofline_of(row.problem, row.config, *spec);
    bound_us = roofline.bound_us;
    bound_by = roofline.bound_by;
  }
  Json values = {lists.configs.number_of(row.config),
                 to_string(row.status),
                 row.reason,
                 to_string(row.rigor),
                 row.race,
                 row.place,
                 number(row.median_us),
                 number(row.p20_us),
                 number(row.p80_us),
                 row.samples_us.size(),
                 number(row.predicted_us),
                 row.sm_clock_mhz,
                 clocks.empty() ? 0 : *low,
                 clocks.empty() ? 0 : *high,
                 number(row.error_o),
                 number(row.error_lse),
                 row.registers,
                 row.spill_bytes,
                 row.shared_bytes,
                 number(row.compile_ms),
                 bound_us,
                 bound_by,
                 lists.provenances.number_of(row),
                 row.source_hash,
                 row.created_at,
                 number(row.wide_median_us)};
  return values;
}

}  // namespace attune
