#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "generator/device/device_spec.h"
#include "tuner/database/measurement.h"

namespace attune {

/// Provenance is the same for many rows: rows hold its number.
class ReportProvenances {
 public:
  std::size_t number_of(const Measurement& row);
  const nlohmann::ordered_json& list() const { return list_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, std::size_t> numbers_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

/// Many problems were tried with the same configs: rows hold a config's number.
class ReportConfigs {
 public:
  std::size_t number_of(const KernelConfig& config);
  const nlohmann::ordered_json& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

/// What the rows of a document share.
struct ReportRowLists {
  ReportProvenances provenances;
  ReportConfigs configs;
};

/// The names of report_row()'s values, and the keys and titles of a config's fields.
nlohmann::ordered_json report_columns();
nlohmann::ordered_json report_config_fields();

/// The values of a row. `spec` is its device where that is known: else its kernel has no ceiling.
nlohmann::ordered_json report_row(const Measurement& row, const std::optional<DeviceSpec>& spec, ReportRowLists& lists);

}  // namespace attune
