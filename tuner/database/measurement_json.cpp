#include "tuner/database/measurement_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "generator/error.h"
#include "runtime/system/json_text.h"

namespace attune {
namespace {

using nlohmann::json;

json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// Reads object[key] into a field, whose value stays if the key is missing.
class Reader {
 public:
  Reader(const json& object, const char* what) : object_(object), what_(what) {
    if (!object.is_object()) throw Error(ErrorCode::invalid_argument, fmt::format("{}: not a JSON object", what));
  }

  void read(const char* key, double& field) const {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (found->is_number()) {
      field = found->get<double>();
    } else if (*found == "nan") {
      field = std::numeric_limits<double>::quiet_NaN();
    } else if (*found == "inf" || *found == "-inf") {
      field = (*found == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    } else {
      complain(key, *found, "a number");
    }
  }

  template <typename T>
  void read(const char* key, T& field) const {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    const JsonView value(*found, what_, fmt::format("/{}", key));
    if constexpr (std::is_same_v<T, bool>) {
      field = value.boolean();
    } else if constexpr (std::is_same_v<T, std::string>) {
      field = value.text();
    } else if constexpr (std::is_integral_v<T>) {
      field = value.whole<T>();
    } else {
      T list(value.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        if constexpr (std::is_integral_v<typename T::value_type>) {
          list[i] = value.at(i).template whole<typename T::value_type>();
        } else {
          list[i] = value.at(i).number();
        }
      }
      field = std::move(list);
    }
  }

  // A text that `parse` turns into an optional value.
  template <typename Enum, typename Parse>
  void read_name(const char* key, Enum& field, Parse parse) const {
    std::string text;
    read(key, text);
    if (text.empty()) return;
    const auto value = parse(text);
    if (!value) complain(key, text, "one of the known words");
    field = *value;
  }

 private:
  [[noreturn]] void complain(const char* key, const json& value, const char* expected) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: field \"{}\" is {}, expected {}", what_, key, shown(value), expected));
  }
  const json& object_;
  const char* what_;
};

}  // namespace

json node_gpu_to_json(const NodeGpu& node) {
  json object = json::object();
  const std::pair<const char*, std::string> texts[] = {
      {"host", node.host}, {"gpu_uuid", node.gpu_uuid}, {"driver_build", node.driver_build}};
  for (const auto& [key, text] : texts)
    if (!text.empty()) object[key] = text;
  const std::pair<const char*, int> numbers[] = {{"power_limit_w", node.power_limit_w},
                                                 {"sm_clock_limit_mhz", node.sm_clock_limit_mhz},
                                                 {"memory_clock_mhz", node.memory_clock_mhz}};
  for (const auto& [key, number] : numbers)
    if (number != 0) object[key] = number;
  return object;
}

NodeGpu node_gpu_from_json(const json& object) {
  const Reader reader(object, "node");
  NodeGpu node;
  reader.read("host", node.host);
  reader.read("gpu_uuid", node.gpu_uuid);
  reader.read("driver_build", node.driver_build);
  reader.read("power_limit_w", node.power_limit_w);
  reader.read("sm_clock_limit_mhz", node.sm_clock_limit_mhz);
  reader.read("memory_clock_mhz", node.memory_clock_mhz);
  return node;
}

json measurement_to_json(const Measurement& m) {
  json object = {{"problem", canonical_text(m.problem)},
                 {"config", canonical_text(m.config)},
                 {"device", m.device},
                 {"sm_count", m.sm_count},
                 {"status", to_string(m.status)},
                 {"reason", m.reason},
                 {"rigor", to_string(m.rigor)},
                 {"samples_us", m.samples_us},
                 {"clocks_mhz", m.clocks_mhz},
                 {"median_us", number(m.median_us)},
                 {"p20_us", number(m.p20_us)},
                 {"p80_us", number(m.p80_us)},
                 {"tflops", number(m.tflops())},
                 {"predicted_us", number(m.predicted_us)},
                 {"sm_clock_mhz", m.sm_clock_mhz},
                 {"error_o", number(m.error_o)},
                 {"error_lse", number(m.error_lse)},
                 {"registers", m.registers},
                 {"spill_bytes", m.spill_bytes},
                 {"shared_bytes", m.shared_bytes},
                 {"compile_ms", number(m.compile_ms)},
                 {"source_hash", m.source_hash},
                 {"compiler", m.compiler},
                 {"driver", m.driver},
                 {"protocol", m.protocol},
                 {"attune_version", m.attune_version},
                 {"created_at", m.created_at}};
  if (!m.race.empty()) object["race"] = m.race;
  if (m.place != 0) object["place"] = m.place;
  if (m.sequence != 0) object["sequence"] = m.sequence;
  if (!m.wide_samples_us.empty()) object["wide_samples_us"] = m.wide_samples_us;
  if (m.wide_median_us != 0) object["wide_median_us"] = number(m.wide_median_us);
  object.update(node_gpu_to_json(m.node));
  return object;
}

Measurement measurement_from_json(const json& object) {
  const Reader reader(object, "measurement");
  Measurement m;
  std::string problem, config;
  reader.read("problem", problem);
  reader.read("config", config);
  if (!problem.empty()) m.problem = parse_problem(problem);
  if (!config.empty()) m.config = parse_config(config);
  reader.read("device", m.device);
  reader.read("sm_count", m.sm_count);
  reader.read_name("status", m.status, parse_measurement_status);
  reader.read("reason", m.reason);
  reader.read_name("rigor", m.rigor, parse_rigor);
  reader.read("race", m.race);
  reader.read("place", m.place);
  reader.read("samples_us", m.samples_us);
  reader.read("clocks_mhz", m.clocks_mhz);
  reader.read("median_us", m.median_us);
  reader.read("p20_us", m.p20_us);
  reader.read("p80_us", m.p80_us);
  reader.read("predicted_us", m.predicted_us);
  reader.read("sm_clock_mhz", m.sm_clock_mhz);
  reader.read("error_o", m.error_o);
  reader.read("error_lse", m.error_lse);
  reader.read("registers", m.registers);
  reader.read("spill_bytes", m.spill_bytes);
  reader.read("shared_bytes", m.shared_bytes);
  reader.read("compile_ms", m.compile_ms);
  reader.read("source_hash", m.source_hash);
  if (object.contains(kTemplatesHash)) {
    std::string hash;
    reader.read(kTemplatesHash, hash);
    m.source_hash = std::string(kTemplatesMark) + hash;
  }
  reader.read("compiler", m.compiler);
  reader.read("driver", m.driver);
  reader.read("protocol", m.protocol);
  reader.read("attune_version", m.attune_version);
  reader.read("created_at", m.created_at);
  reader.read("sequence", m.sequence);
  reader.read("wide_samples_us", m.wide_samples_us);
  reader.read("wide_median_us", m.wide_median_us);
  m.node = node_gpu_from_json(object);
  return m;
}

json device_spec_to_json(const DeviceSpec& spec) {
  json object;
  visit_fields(spec, [&](const char* name, const auto& field) { object[name] = field; });
  return object;
}

DeviceSpec device_spec_from_json(const json& object) {
  const Reader reader(object, "device spec");
  DeviceSpec spec;
  visit_fields(spec, [&](const char* name, auto& field) { reader.read(name, field); });
  return spec;
}

json trial_options_to_json(const TrialOptions& options) {
  json object = {{"sample_seconds", options.sample_seconds},
                 {"min_samples", options.min_samples},
                 {"hopeless_us", options.hopeless_us},
                 {"check", options.check},
                 {"time", options.time},
                 {"cuda_ordinal", options.cuda_ordinal}};
  if (options.spill_allowance_bytes) object["spill_allowance_bytes"] = *options.spill_allowance_bytes;
  return object;
}

TrialOptions trial_options_from_json(const json& object) {
  const Reader reader(object, "trial options");
  TrialOptions options;
  reader.read("sample_seconds", options.sample_seconds);
  reader.read("min_samples", options.min_samples);
  reader.read("hopeless_us", options.hopeless_us);
  reader.read("check", options.check);
  reader.read("time", options.time);
  if (object.contains("spill_allowance_bytes"))
    reader.read("spill_allowance_bytes", options.spill_allowance_bytes.emplace());
  reader.read("cuda_ordinal", options.cuda_ordinal);
  return options;
}

json race_options_to_json(const RaceOptions& options) {
  return {{"seconds", options.seconds},
          {"min_rounds", options.min_rounds},
          {"wide", options.wide},
          {"cuda_ordinal", options.cuda_ordinal}};
}

RaceOptions race_options_from_json(const json& object) {
  const Reader reader(object, "race options");
  RaceOptions options;
  reader.read("seconds", options.seconds);
  reader.read("min_rounds", options.min_rounds);
  reader.read("wide", options.wide);
  reader.read("cuda_ordinal", options.cuda_ordinal);
  return options;
}

}  // namespace attune
