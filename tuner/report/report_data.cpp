#include "tuner/report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>

#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "tuner/report/roofline.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;
using Entry = TuningDatabase::Entry;

Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

bool same_but_scale_and_layout(AttentionProblem a, const AttentionProblem& b) {
  a.softmax_scale = b.softmax_scale;
  a.layout = b.layout;
  return a == b;
}

/// What a reader calls the fields of a config, in the order of field_values().
struct ConfigField {
  const char* key;
  const char* title;
};
constexpr ConfigField kConfigFields[] = {
    {"family", "kernel family"},
    {"block_q", "queries of a CTA (q)"},
    {"block_kv", "keys of a step (kv)"},
    {"warps", "warps (w)"},
    {"stages", "stages (st)"},
    {"q_in_registers", "Q fragments in"},
    {"tile_order", "order of tiles"},
    {"l2_parts", "parts of L2, of which a section fills one (l2parts)"},
    {"rescale_threshold", "rescale threshold, powers of two"},
    {"whole_tiles", "lengths"},
    {"ctas_per_sm", "CTAs that must fit on an SM"},
    {"q_stages", "stages of Q (qst)"},
    {"without_maximum", "reference of unmasked blocks"},
    {"warpgroup_order", "order of warpgroups"},
    {"overlap", "overlap"},
    {"persistence", "persistence"},
    {"v_stages", "stages of V (vst)"},
    {"p_in_shared", "P through"},
    {"cluster", "CTAs of a cluster"},
    {"packed_heads", "heads of a tile"},
    {"emulated_exponentials", "exponentials by a polynomial, of 16"},
    {"producer_registers", "registers of the producer"},
    {"split", "warps that share keys (split)"},
    {"heads_apart", "tiles of keys belong to"},
    {"dq_first", "dQ's product"},
    {"dq", "dQ"},
};

Json field_values(const KernelConfig& config) {
  // A new field of a config does not compile here until the page knows it.
  const auto& [family, block_q, block_kv, warps, stages, q_in_registers, tile_order, l2_parts, rescale_threshold,
               whole_tiles, ctas_per_sm, q_stages, without_maximum, warpgroup_order, overlap, persistence, v_stages,
               p_in_shared, cluster, packed_heads, emulated_exponentials, producer_registers, split, heads_apart,
               dq_first, dq] = config;
  Json values = {to_string(family),
                 block_q,
                 block_kv,
                 warps,
                 stages,
                 q_in_registers ? "registers" : "shared memory",
                 to_string(tile_order),
                 l2_parts,
                 rescale_threshold,
                 whole_tiles ? "whole tiles" : "any",
                 ctas_per_sm,
                 q_stages,
                 without_maximum ? "kept" : "maximum",
                 to_string(warpgroup_order),
                 to_string(overlap),
                 to_string(persistence),
                 v_stages == 0 ? stages : v_stages,
                 p_in_shared ? "shared memory" : "registers",
                 cluster,
                 packed_heads ? "those of a group" : "one",
                 emulated_exponentials,
                 producer_registers == 0 ? Json("fewest") : Json(producer_registers),
                 split,
                 heads_apart ? "each query head" : "the heads that share them",
                 dq_first ? "before those of dK and dV" : "after those of dK and dV",
                 to_string(dq)};
  return values;
}

constexpr const char* kColumns[] = {
    "config",    "status",      "reason",       "rigor",        "race",      "place",      "median_us",  "p20_us",
    "p80_us",    "samples",     "predicted_us", "sm_clock_mhz", "clock_low", "clock_high", "error_o",    "error_lse",
    "registers", "spill_bytes", "shared_bytes", "compile_ms",   "bound_us",  "bound_by",   "provenance", "created_at"};

/// Provenance is the same for many rows: rows hold its number.
class Provenances {
 public:
  std::size_t number_of(const Measurement& row) {
    const Key key(row.templates_hash, row.compiler, row.driver, row.protocol, row.attune_version);
    const auto [found, added] = numbers_.emplace(key, numbers_.size());
    if (added) {
      list_.push_back({{"templates_hash", row.templates_hash},
                       {"compiler", row.compiler},
                       {"driver", row.driver},
                       {"protocol", row.protocol},
                       {"attune_version", row.attune_version}});
    }
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, std::size_t> numbers_;
  Json list_ = Json::array();
};

/// Many problems were tried with the same configs: rows hold a config's number.
class Configs {
 public:
  std::size_t number_of(const KernelConfig& config) {
    const auto [found, added] = numbers_.emplace(canonical_text(config), numbers_.size());
    if (added) list_.push_back({{"text", found->first}, {"fields", field_values(config)}});
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  Json list_ = Json::array();
};

/// What the rows of a document share.
struct Shared {
  Provenances provenances;
  Configs configs;
};

/// `spec` is the row's device where it is known: else its kernel has no ceiling.
Json row_values(const Measurement& row, const std::optional<DeviceSpec>& spec, Shared& shared) {
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
  Json values = {shared.configs.number_of(row.config),
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
                 shared.provenances.number_of(row),
                 row.created_at};
  return values;
}

/// Each config by the newest row of its highest rigor, in the order of their first rows; `rows` are oldest first.
std::vector<const Measurement*> standing_rows(const std::vector<Measurement>& rows) {
  std::vector<const Measurement*> standing;
  std::map<std::string, std::size_t> places;
  for (const Measurement& row : rows) {
    const auto [found, added] = places.emplace(canonical_text(row.config), standing.size());
    if (added) {
      standing.push_back(&row);
    } else if (row.rigor >= standing[found->second]->rigor) {
      standing[found->second] = &row;
    }
  }
  return standing;
}

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
  if (spec) spec->sm_count = entry.sm_count;
  return spec;
}

Json device_json(const Entry& entry) {
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

Json peer_json(const PeerRow& row, const PeerTime& time, std::size_t file) {
  Json json = {{"peer", time.peer}, {"title", peer_title(time.peer)}, {"file", file}, {"within", time.within}};
  if (!time.error.empty()) {
    json["error"] = time.error;
    return json;
  }
  json["median_us"] = time.median_us;
  json["p20_us"] = time.p20_us;
  json["p80_us"] = time.p80_us;
  json["samples"] = time.samples;
  if (row.attune_us > 0) {
    json["attune_us"] = row.attune_us;
    json["attune_p20_us"] = row.attune_p20_us;
    json["attune_p80_us"] = row.attune_p80_us;
    json["attune_config"] = row.config;
  }
  return json;
}

/// The peers of one problem, each by the last file that names it; counts in `matched` the rows that were used.
Json peers_of(const Entry& entry, const std::vector<PeerFile>& files, std::vector<std::vector<bool>>& matched) {
  std::map<std::string, Json> by_name;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const PeerFile& file = files[f];
    if (file.gpu != entry.device || (file.sm_count != 0 && file.sm_count != entry.sm_count)) continue;
    for (std::size_t r = 0; r < file.rows.size(); ++r) {
      if (!same_but_scale_and_layout(file.rows[r].problem, entry.problem)) continue;
      matched[f][r] = true;
      for (const PeerTime& time : file.rows[r].peers) by_name[time.peer] = peer_json(file.rows[r], time, f);
    }
  }
  Json peers = Json::array();
  for (auto& [name, peer] : by_name) peers.push_back(std::move(peer));
  return peers;
}

Json peer_file_json(const PeerFile& file, const std::vector<bool>& matched) {
  Json json = {{"file", file.name},         {"gpu", file.gpu},
               {"protocol", file.protocol}, {"versions", Json::object()},
               {"rows", file.rows.size()},  {"shown", std::count(matched.begin(), matched.end(), true)}};
  for (const auto& [what, version] : file.versions) json["versions"][what] = version;
  return json;
}

/// Which problems bring all their rows.
std::vector<bool> with_trials(const ReportRequest& request) {
  std::vector<std::size_t> order(request.entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if ((a == request.selected) != (b == request.selected)) return a == request.selected;
    return request.entries[a].rows > request.entries[b].rows;
  });
  std::vector<bool> included(request.entries.size());
  std::int64_t left = static_cast<std::int64_t>(request.max_rows);
  for (const std::size_t i : order) {
    const std::int64_t rows = request.entries[i].rows;
    included[i] = i == request.selected || rows <= left;
    if (included[i]) left -= rows;
  }
  return included;
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

Json problem_json(const TuningDatabase& database, const Entry& entry, bool trials, Shared& shared) {
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
    if (const Measurement* row = row_of_default(rows, config, best)) json["default"] = row_values(*row, spec, shared);
  }
  if (best) {
    json["best"] = row_values(*best, spec, shared);
    if (best->rigor > Rigor::estimate) json["model"] = model_json(model_quality(rows, best->median_us));
  }
  if (trials) {
    json["trials"] = Json::array();
    for (const Measurement& row : rows) json["trials"].push_back(row_values(row, spec, shared));
  }
  return json;
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) result[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return result;
}

}  // namespace

std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 3) return std::nullopt;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

ModelQuality model_quality(const std::vector<Measurement>& rows, double best_us) {
  std::vector<Measurement> in_order = rows;
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Measurement& a, const Measurement& b) { return a.created_at < b.created_at; });
  std::vector<const Measurement*> standing;
  for (const Measurement* row : standing_rows(in_order)) {
    if (row->rigor > Rigor::estimate && row->predicted_us > 0) standing.push_back(row);
  }
  std::sort(standing.begin(), standing.end(), [](const Measurement* a, const Measurement* b) {
    return a->predicted_us != b->predicted_us ? a->predicted_us < b->predicted_us
                                              : canonical_text(a->config) < canonical_text(b->config);
  });
  const auto timed = [](const Measurement& row) { return row.status == MeasurementStatus::ok && row.median_us > 0; };

  ModelQuality quality;
  std::vector<double> predicted, measured;
  double fastest_of_first = 0;
  for (const Measurement* row : standing) {
    const bool first = quality.first < kModelFirst;
    if (first) ++quality.first;
    if (!timed(*row)) continue;
    predicted.push_back(row->predicted_us);
    measured.push_back(row->median_us);
    if (!first) continue;
    if (row->median_us <= kNearBest * best_us) ++quality.first_near_best;
    if (fastest_of_first == 0 || row->median_us < fastest_of_first) fastest_of_first = row->median_us;
  }
  quality.compared = static_cast<int>(measured.size());
  quality.rank_correlation = rank_correlation(predicted, measured);
  if (best_us > 0) quality.first_over_best = fastest_of_first / best_us;
  return quality;
}

std::optional<std::size_t> most_rows(const std::vector<Entry>& entries, const std::optional<AttentionProblem>& problem,
                                     const std::function<bool(const Entry&)>& preferred) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return entries[a].rows > entries[b].rows; });
  const auto first = [&](auto matches) -> std::optional<std::size_t> {
    std::optional<std::size_t> any;
    for (const std::size_t i : order) {
      if (!matches(entries[i])) continue;
      if (preferred(entries[i])) return i;
      if (!any) any = i;
    }
    return any;
  };
  if (!problem) return first([](const Entry&) { return true; });
  const std::optional<std::size_t> same = first([&](const Entry& entry) { return entry.problem == *problem; });
  if (same) return same;
  return first([&](const Entry& entry) { return same_but_scale_and_layout(entry.problem, *problem); });
}

bool is_measured(const TuningDatabase& database, const Entry& entry) {
  const std::optional<Measurement> best = database.best(entry.problem, entry.device, entry.sm_count);
  return best && best->rigor > Rigor::estimate;
}

Json report_data(const TuningDatabase& database, const ReportRequest& request) {
  std::vector<std::vector<bool>> matched;
  for (const PeerFile& file : request.peers) matched.emplace_back(file.rows.size(), false);
  const std::vector<bool> included = with_trials(request);
  Shared shared;

  // Shapes that a reader compares stand together.
  std::vector<std::size_t> order(request.entries.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::size_t i) {
    const Entry& entry = request.entries[i];
    const AttentionProblem& p = entry.problem;
    return std::tuple(std::string_view(entry.device), entry.sm_count, p.head_dim, p.dtype, p.seq_q, p.seq_kv, p.mask,
                      p.batch * p.heads_q, p.pass, i);
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });

  Json devices = Json::array(), problems = Json::array();
  std::map<std::pair<std::string, int>, std::size_t> device_numbers;
  std::size_t selected = 0;
  for (const std::size_t i : order) {
    const Entry& entry = request.entries[i];
    const auto [device, added] = device_numbers.emplace(std::pair(entry.device, entry.sm_count), devices.size());
    if (added) devices.push_back(device_json(entry));
    if (i == request.selected) selected = problems.size();
    Json problem = problem_json(database, entry, included[i], shared);
    problem["device"] = device->second;
    problem["peers"] = peers_of(entry, request.peers, matched);
    problems.push_back(std::move(problem));
  }

  Json fields = Json::array(), peer_files = Json::array();
  for (const ConfigField& field : kConfigFields) fields.push_back({{"key", field.key}, {"title", field.title}});
  for (std::size_t f = 0; f < request.peers.size(); ++f)
    peer_files.push_back(peer_file_json(request.peers[f], matched[f]));
  return {{"format", "attune report"},
          {"version", 2},
          {"made_at", utc_now()},
          {"attune_version", attune_version()},
          {"database", database.path().filename().string()},
          {"near_best", kNearBest},
          {"devices", std::move(devices)},
          {"fields", std::move(fields)},
          {"columns", kColumns},
          {"configs", shared.configs.list()},
          {"provenance", shared.provenances.list()},
          {"peer_files", std::move(peer_files)},
          {"selected", selected},
          {"problems", std::move(problems)}};
}

}  // namespace attune
