#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tuner/cli/explanation.h"
#include "tuner/cli/report.h"
#include "tuner/database/system_database.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

/// The sentence for a user who would otherwise take a default config for a tuned one.
std::string why_no_presets() {
  if (const std::string_view off = presets_switched_off(); !off.empty()) return fmt::format("none: {}", off);
  return "none: no shipped results were found, so none are looked at; a whole build of Attune has them, and "
         "ATTUNE_SYSTEM_DATABASE names them elsewhere";
}

Json layers_to_json(const Explanation& explanation) {
  Json layers = Json::array();
  for (const auto& [layer, rows] : explanation.layers) {
    Json entry = {
        {"database", layer.of_system ? "system" : "user"}, {"path", layer.database->path().string()}, {"rows", rows}};
    const DatabaseLabel& label = layer.database->label();
    if (!label.name.empty()) entry["name"] = label.name;
    if (!label.version.empty()) entry["version"] = label.version;
    if (const std::string& why = layer.database->unreadable_because(); !why.empty()) entry["unreadable"] = why;
    layers.push_back(std::move(entry));
  }
  return layers;
}

/// Whether the pick's speed was seen here, on another GPU, or by nobody.
std::string describe_basis(const Explanation& explanation) {
  const ConfigChoice& choice = explanation.choice;
  switch (choice.basis) {
    case ConfigBasis::measured:
      return choice.origin == ConfigOrigin::exact ? "measured on this GPU, for this very problem"
                                                  : "measured on this GPU, for another problem";
    case ConfigBasis::borrowed:
      return fmt::format("borrowed from {}, where it was measured; nothing measured on this GPU serves this problem",
                         choice.lender);
    case ConfigBasis::model:
      return choice.origin == ConfigOrigin::default_config
                 ? "guessed by the cost model: no time of it was measured"
                 : "guessed by the cost model, of configs that were proven correct: no time of it was measured";
    case ConfigBasis::unknown:
      break;
  }
  return "not known";
}

/// "1. user database: /home/ann/tuning.db, 12 rows": one line for each that picks come from.
void print_layers(const Explanation& explanation) {
  for (std::size_t i = 0; i < explanation.layers.size(); ++i) {
    const auto& [layer, rows] = explanation.layers[i];
    const std::string path = layer.database->path().string();
    const bool presets = layer.database->label().name == kPresetsName;
    const bool in_title = layer.title.ends_with(path);
    const std::string how_many = !layer.database->unreadable_because().empty()
                                     ? "cannot be read"
                                     : fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
    print_field(i == 0 ? "databases" : "",
                fmt::format("{}. {}{}, {}", i + 1, layer.title, presets || in_title ? "" : ": " + path, how_many));
  }
}

Json candidate_to_json(const Explained& candidate, const Explanation& explanation) {
  Json entry = {{"config", canonical_text(candidate.config)}, {"picked", candidate.picked}};
  entry["status"] = candidate.row ? to_string(candidate.row->status) : "not_tried";
  if (candidate.row) {
    if (!candidate.row->reason.empty()) entry["reason"] = candidate.row->reason;
    entry["rigor"] = to_string(candidate.row->rigor);
    if (candidate.row->place > 0) {
      entry["race"] = candidate.row->race;
      entry["place"] = candidate.row->place;
    }
    entry["created_at"] = candidate.row->created_at;
    if (!candidate.stale.empty()) entry["stale"] = candidate.stale;
    const TunedConfigs::Layer& layer = explanation.layers[candidate.layer].layer;
    entry["database"] = layer.of_system ? "system" : "user";
    entry["layer"] = candidate.layer;
  }
  if (candidate.timed()) {
    entry["median_us"] = candidate.row->median_us;
    entry["p20_us"] = candidate.row->p20_us;
    entry["p80_us"] = candidate.row->p80_us;
    if (candidate.row->wide_median_us > 0) entry["wide_median_us"] = candidate.row->wide_median_us;
    entry["tflops"] = candidate.row->tflops();
    if (candidate.feasible()) entry["model_over_measured"] = candidate.cost.microseconds / candidate.row->median_us;
  }
  if (candidate.feasible()) {
    entry["predicted_us"] = candidate.cost.microseconds;
    entry["registers"] = candidate.registers;
    entry["registers_from"] = candidate.registers_compiled ? "compiler" : "model";
    if (candidate.timed()) entry["reached"] = candidate.roofline.bound_us / candidate.row->median_us;
  }
  if (candidate.occupancy) {
    const Occupancy& occupancy = *candidate.occupancy;
    entry["ctas_per_sm"] = occupancy.ctas_per_sm;
    entry["waves"] = occupancy.waves;
    entry["launch"] = {{"entry", occupancy.entry},          {"grid", occupancy.grid},
                       {"cluster", occupancy.cluster},      {"threads", occupancy.threads},
                       {"tiles", occupancy.tiles},          {"shared_bytes", occupancy.shared_bytes},
                       {"persistent", occupancy.persistent}};
  }
  if (!candidate.why_not.empty()) entry["why_not"] = candidate.why_not;
  return entry;
}

/// "3 CTAs/SM, 1.94 waves"; "1 CTA/SM, 132 persistent CTAs (66 clusters of 2) of 7.8 tiles each".
std::string describe_occupancy(const Occupancy& occupancy) {
  std::string text = fmt::format("{} CTA{}/SM, ", occupancy.ctas_per_sm, occupancy.ctas_per_sm == 1 ? "" : "s");
  const std::string clusters =
      occupancy.cluster > 1
          ? fmt::format(" ({} clusters of {})", occupancy.grid / static_cast<std::uint32_t>(occupancy.cluster),
                        occupancy.cluster)
          : "";
  if (occupancy.persistent) {
    return text +
           fmt::format("{} persistent CTAs{} of {:.1f} tiles each", occupancy.grid, clusters, occupancy.tiles_of_cta);
  }
  return text + fmt::format("{:.2f} waves{}", occupancy.waves, clusters);
}

/// Two lines: what it is and how fast; of a tried one, why it was not picked.
void print_candidate(const Explained& candidate, std::size_t width) {
  std::string time = candidate.row ? std::string(to_string(candidate.row->status)) : "not tried";
  if (candidate.timed()) {
    time = fmt::format("{:.1f} us ({:.1f} to {:.1f}){}", candidate.row->median_us, candidate.row->p20_us,
                       candidate.row->p80_us, describe_wide(*candidate.row));
    if (is_election(*candidate.row)) {
      time += ", stands until a race decides";
    } else if (candidate.row->place > 0) {
      time += fmt::format(", place {} in its race", candidate.row->place);
    }
    if (!candidate.stale.empty()) time += ", stale";
  } else if (candidate.row && candidate.row->status == MeasurementStatus::ok) {
    time = "correct, not timed";
  }
  std::string line =
      fmt::format("{} {:<{}} {}", candidate.picked ? '*' : ' ', canonical_text(candidate.config), width, time);
  if (candidate.feasible()) {
    line += fmt::format("; model {:.1f} us", candidate.cost.microseconds);
    if (candidate.timed())
      line += fmt::format(" ({:+.0f} %)", (candidate.cost.microseconds / candidate.row->median_us - 1) * 100);
    line += fmt::format("; {}{} registers", candidate.registers_compiled ? "" : "about ", candidate.registers);
    if (candidate.occupancy) line += ", " + describe_occupancy(*candidate.occupancy);
  }
  print(line + "\n");
  if (candidate.row && !candidate.why_not.empty()) print_line("      " + candidate.why_not);
}

}  // namespace

Json to_json(const Explanation& explanation) {
  const Explained& pick = explanation.candidates.front();
  const Roofline& roofline = pick.roofline;
  const DeviceSpec& device = explanation.device.spec;
  Json document = {{"problem", canonical_text(explanation.problem)}, {"device", device.name}, {"target", device.key}};
  add_choice(document, explanation.choice);
  document["basis"] = to_string(explanation.choice.basis);
  if (!explanation.choice.lender.empty()) document["borrowed_from"] = explanation.choice.lender;
  document["presets"] = !explanation.no_presets();
  document["layers"] = layers_to_json(explanation);
  document["measured"] = explanation.measured;
  document["rows"] = explanation.rows;
  if (!explanation.tune.empty()) document["tune_command"] = explanation.tune;
  document["roofline"] = {{"flops", count_flops(explanation.problem)},
                          {"bytes", count_bytes(explanation.problem)},
                          {"instruction", to_string(roofline.instruction)},
                          {"peak_tflops", peak_tflops(roofline.instruction, device)},
                          {"clock_mhz", device.clock_mhz},
                          {"matrix_us", roofline.matrix_us},
                          {"exponential_us", roofline.exponential_us},
                          {"memory_us", roofline.memory_us},
                          {"bound_us", roofline.bound_us},
                          {"bound_by", roofline.bound_by}};
  if (pick.timed()) document["roofline"]["reached"] = roofline.bound_us / pick.row->median_us;
  document["candidates"] = Json::array();
  for (const Explained& candidate : explanation.candidates)
    document["candidates"].push_back(candidate_to_json(candidate, explanation));
  document["not_shown"] = explanation.not_shown;
  return document;
}

void print_explanation(const Explanation& explanation) {
  const Explained& pick = explanation.candidates.front();
  const Roofline& roofline = pick.roofline;
  print_field("problem", canonical_text(explanation.problem));
  print_field("device", explanation.device.is_cuda()
                            ? fmt::format("{} {}", explanation.device.name, explanation.device.spec.name)
                            : fmt::format("{} ({})", explanation.device.spec.key, explanation.device.spec.name));
  print_field("pick", canonical_text(explanation.choice.config));
  print_field("origin", describe_origin(explanation.choice));
  print_field("rests on", describe_basis(explanation));
  print_layers(explanation);
  if (explanation.no_presets()) print_field("presets", why_no_presets());
  if (!explanation.measured)
    print_field("measured", "nothing was measured for this problem on this device: what follows is the cost model's");
  if (!explanation.tune.empty()) {
    print_field("to tune it", explanation.tune + where_to_measure(explanation.device));
  }
  print_field("work", fmt::format("{:.4g} FLOP, at least {:.4g} bytes of device memory",
                                  count_flops(explanation.problem), count_bytes(explanation.problem)));
  const DeviceSpec& device = explanation.device.spec;
  print_field("roofline", fmt::format("{:.4g} us, bound by {} (matrix products by {} {:.4g}, exponentials {:.4g}, "
                                      "device memory {:.4g} us; {:.0f} TFLOP/s at a boost clock of {} MHz)",
                                      roofline.bound_us, roofline.bound_by, to_string(roofline.instruction),
                                      roofline.matrix_us, roofline.exponential_us, roofline.memory_us,
                                      peak_tflops(roofline.instruction, device), device.clock_mhz));
  if (pick.timed()) {
    print_field("reached", fmt::format("{:.0f} % of the roofline, {:.1f} TFLOP/s",
                                       roofline.bound_us / pick.row->median_us * 100, pick.row->tflops()));
  }
  print_field("candidates", explanation.measured   ? "the pick first, then as they rank"
                            : explanation.rows > 0 ? "the pick first, then by the stored ranking"
                                                   : "the pick first, then in the cost model's order");
  std::size_t width = 0;
  for (const Explained& candidate : explanation.candidates)
    width = std::max(width, canonical_text(candidate.config).size());
  for (const Explained& candidate : explanation.candidates) print_candidate(candidate, width);
  if (explanation.not_shown > 0) print(fmt::format("  ... and {} more (--limit 0 lists all)\n", explanation.not_shown));
}

}  // namespace attune::cli
