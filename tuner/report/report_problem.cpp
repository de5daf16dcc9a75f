#include "tuner/report/report_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "tuner/report/model_quality.h"
#include "tuner/report/roofline.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;
using Entry = TuningDatabase::Entry;

/// The default's row that stands beside the best one: of the same race if there is one, else as any config stands.
const Measurement* row_of_default(const std::vector<Measurement>& rows, const KernelConfig& config,
                                  const std::optional<Measurement>& best) {
  if (best && !best->race.empty()) {
    for (const Measurement& row : rows) {
      if (row.config == config && row.race == best->race) return &row;
    }
  }
  for (const Measurement* row : standing_rows(rows)) {
    if (row->config == config) return row;
  }
  return nullptr;
}

/// The known device of this name, with as many SMs as the rows name: it may have been a part of that GPU.
std::optional<DeviceSpec> spec_of(const Entry& entry) {
  std::optional<DeviceSpec> spec = find_device_by_name(entry.device);
  if (!spec) {
    for (const DeviceSpec& known : known_devices()) {
      if (known.name == entry.device) spec = known;
    }
  }
  if (!is_count_of_sms(entry.sm_count)) return std::nullopt;
  if (spec) spec->sm_count = entry.sm_count;
  return spec;
}

/// "forward bf16 B4 H16 S4096 D128 causal": what a reader scans for; of two problems never the same.
std::string short_name(const AttentionProblem& p) {
  std::string name = fmt::format("{} {} B{} H{}", to_string(p.pass), to_string(p.dtype), p.batch, p.heads_q);
  if (p.heads_kv != p.heads_q) name += fmt::format("/{}", p.heads_kv);
  name += fmt::format(" S{}", p.seq_q);
  if (p.seq_kv != p.seq_q) name += fmt::format("/{}", p.seq_kv);
  name += fmt::format(" D{}", p.head_dim);
  // What else is not at its default, in the words of the canonical text.
  const std::string text = canonical_text(p);
  const std::size_t dim = text.find(fmt::format(" d{}", p.head_dim));
  const std::size_t rest = text.find(' ', dim + 1);
  if (!hides_pairs(p.mask)) name += " full";
  if (rest != std::string::npos) name += text.substr(rest);
  return name;
}

Json model_json(const ModelQuality& quality) {
  Json json = {{"compared", quality.compared},
               {"rank_correlation", nullptr},
               {"first", quality.first},
               {"first_near_best", quality.first_near_best},
               {"first_over_best", quality.first_over_best}};
  if (quality.rank_correlation) json["rank_correlation"] = *quality.rank_correlation;
  return json;
}

/// FLOP of an attended (query, key) pair of one query head; each has one exponential.
double flops_per_pair(const AttentionProblem& problem) {
  const double pairs = static_cast<double>(count_attended_pairs(problem)) * static_cast<double>(problem.batch) *
                       static_cast<double>(problem.heads_q);
  return pairs > 0 ? count_flops(problem) / pairs : 0;
}

/// What each unit of a known device needs for a problem: matrix products by each instruction that it has.
Json ceilings_json(const AttentionProblem& problem, const DeviceSpec& spec) {
  const Roofline roofline = roofline_of(problem, KernelConfig{}, spec);
  Json json = {
      {"matrix_us", Json::object()}, {"exponential_us", roofline.exponential_us}, {"memory_us", roofline.memory_us}};
  for (const MatrixInstruction instruction : kMatrixInstructions) {
    if (const double us = matrix_microseconds(problem, instruction, spec); us > 0)
      json["matrix_us"][std::string(to_string(instruction))] = us;
  }
  return json;
}

}  // namespace

Json report_device(const Entry& entry) {
  Json device = {{"name", entry.device}, {"sm_count", entry.sm_count}};
  const std::optional<DeviceSpec> spec = spec_of(entry);
  device["known"] = spec.has_value();
  if (!spec) return device;
  const double clocks_per_us = static_cast<double>(spec->clock_mhz) * spec->sm_count;
  device["key"] = spec->key;
  device["clock_mhz"] = spec->clock_mhz;
  device["memory_gbps"] = spec->memory_gbps;
  device["matrix_tflops"] = Json::object();
  for (const MatrixInstruction instruction : kMatrixInstructions) {
    if (const double tflops = peak_tflops(instruction, *spec); tflops > 0)
      device["matrix_tflops"][std::string(to_string(instruction))] = tflops;
  }
  device["exponentials_per_us"] = spec->exp2_per_clock * clocks_per_us;
  return device;
}

Json report_problem(const TuningDatabase& database, const Entry& entry, bool trials, ReportRowLists& lists) {
  const AttentionProblem& problem = entry.problem;
  const std::vector<Measurement> rows = database.find_all(problem, entry.device, entry.sm_count);
  const std::optional<Measurement> best = database.best(problem, entry.device, entry.sm_count);
  const std::optional<DeviceSpec> spec = spec_of(entry);

  Json json = {{"problem", canonical_text(problem)},
               {"name", short_name(problem)},
               {"pass", to_string(problem.pass)},
               {"dtype", to_string(problem.dtype)},
               {"mask", hides_pairs(problem.mask) ? to_string(problem.mask) : "full"},
               {"head_dim", problem.head_dim},
               {"flops_per_pair", flops_per_pair(problem)},
               {"flops", count_flops(problem)},
               {"bytes", count_bytes(problem)},
               {"rows", entry.rows},
               // A sweep that runs meanwhile may have added rows since the entry was counted.
               {"unreadable", std::max<std::int64_t>(0, entry.rows - static_cast<std::int64_t>(rows.size()))},
               {"statuses", Json::object()},
               {"rigors", Json::object()},
               {"ceilings", nullptr},
               {"best", nullptr},
               {"default", nullptr},
               {"default_config", nullptr},
               {"model", nullptr},
               {"trials", nullptr}};
  const auto count = [](Json& counts, std::string_view name) {
    const std::string key(name);
    counts[key] = counts.value(key, 0) + 1;
  };
  for (const Measurement& row : rows) {
    count(json["statuses"], to_string(row.status));
    count(json["rigors"], to_string(row.rigor));
  }
  if (spec) {
    json["ceilings"] = ceilings_json(problem, *spec);
    const KernelConfig config = default_config(problem, *spec);
    json["default_config"] = canonical_text(config);
    if (const Measurement* row = row_of_default(rows, config, best)) json["default"] = report_row(*row, spec, lists);
  }
  if (best) {
    json["best"] = report_row(*best, spec, lists);
    if (best->rigor > Rigor::estimate) json["model"] = model_json(model_quality(rows, best->median_us));
  }
  if (trials) {
    json["trials"] = Json::array();
    for (const Measurement& row : rows) json["trials"].push_back(report_row(row, spec, lists));
  }
  return json;
}

}  // namespace attune
