#include "tuner/report/report_data.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>

#include "generator/families/kernel_family.h"
#include "generator/generate.h"
#include "tuner/database/tuned_shapes.h"
#include "tuner/report/model_quality.h"
#include "tuner/report/report_peers_json.h"
#include "tuner/report/report_problem.h"
#include "tuner/report/report_rows.h"
#include "tuner/report/roofline.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;
using Entry = TuningDatabase::Entry;

/// By what the kernels of each family multiply.
Json families() {
  Json found = Json::array();
  for (const KernelFamily& family : kernel_families()) {
    found.push_back({{"word", to_string(family.word)},
                     {"pass", to_string(family.pass)},
                     {"instruction", to_string(family.matrix_instruction)}});
  }
  return found;
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

// What readers call a problem, before what it is: "prefill: forward bf16 B4 H16 ...".
std::string called(const AttentionProblem& problem, const std::string& name, const std::vector<NamedProblem>& names) {
  for (const NamedProblem& named : names) {
    if (!named.name.empty() && same_but_scale_and_layout(named.problem, problem)) return named.name + ": " + name;
  }
  return name;
}

}  // namespace

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
  ReportRowLists lists;

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
    if (added) devices.push_back(report_device(entry));
    if (i == request.selected) selected = problems.size();
    Json problem = report_problem(database, entry, included[i], lists);
    problem["name"] = called(entry.problem, problem["name"].get<std::string>(), request.names);
    problem["device"] = device->second;
    problem["peers"] = report_peers_of(entry, request.peers, matched);
    problems.push_back(std::move(problem));
  }

  Json peer_files = Json::array();
  for (std::size_t f = 0; f < request.peers.size(); ++f)
    peer_files.push_back(report_peer_file(request.peers[f], matched[f]));
  return {{"format", "attune report"},
          {"version", 2},
          {"made_at", utc_now()},
          {"attune_version", attune_version()},
          {"database", database.path().filename().string()},
          {"near_best", kNearBest},
          {"devices", std::move(devices)},
          {"families", families()},
          {"fields", report_config_fields()},
          {"columns", report_columns()},
          {"configs", lists.configs.list()},
          {"provenance", lists.provenances.list()},
          {"peer_files", std::move(peer_files)},
          {"selected", selected},
          {"problems", std::move(problems)}};
}

}  // namespace attune
