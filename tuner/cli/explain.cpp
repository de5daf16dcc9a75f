#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/verb.h"
#include "tuner/report/occupancy.h"
#include "tuner/report/roofline.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

/// The sentence for a user who would otherwise take a default config for a tuned one.
constexpr const char* kNoPresets =
    "none: no shipped results were found, so none are looked at; a whole build of Attune has them, and "
    "ATTUNE_SYSTEM_DATABASE names them elsewhere";

struct ExplainOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  std::size_t limit = 10;
};

/// One line of the explanation: a config with what was measured of it, if anything was.
struct Explained {
  KernelConfig config;
  std::optional<Measurement> row;
  bool of_system = false;               // whether the row is the system database's
  std::vector<std::string> infeasible;  // why it does not fit the problem; empty if it does
  CostEstimate cost;                    // of a feasible one
  int registers = 0;                    // as compiled, else as estimated
  bool registers_compiled = false;
  Roofline roofline;                   // of a feasible one
  std::optional<Occupancy> occupancy;  // of a shown one, by the plan that would be launched
  bool picked = false;
  std::string why_not;  // a sentence; empty for the pick

  bool feasible() const { return infeasible.empty(); }
  bool timed() const { return row && row->status == MeasurementStatus::ok && row->median_us > 0; }
};

Explained explain_config(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                         std::optional<Measurement> row) {
  Explained result;
  result.config = config;
  result.infeasible = infeasibility(problem, config, device);
  if (result.feasible()) {
    result.cost = estimate_cost(problem, config, device);
    result.roofline = roofline_of(problem, config, device);
    result.registers_compiled = row && row->registers > 0;
    result.registers = result.registers_compiled ? row->registers : result.cost.registers;
  }
  result.row = std::move(row);
  return result;
}

/// Of the launch that does the products. Where a plan has several a row names the most registers that any of them
/// takes: those of this one, which has the largest accumulators. None for a problem of more tiles than a launch can
/// have.
std::optional<Occupancy> occupancy_of(const AttentionProblem& problem, const Explained& explained,
                                      const DeviceSpec& device) {
  const KernelPlan plan = generate(problem, explained.config, device);
  try {
    return occupancy_of(main_launch(plan), problem, explained.registers, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

/// Equal but for what the kernel takes as an argument at each call: the database answers for both.
bool shares_answers(AttentionProblem a, const AttentionProblem& b) {
  a.softmax_scale = b.softmax_scale;
  a.layout = b.layout;
  return a == b;
}

/// Each config by the newest row of its highest rigor.
std::vector<Measurement> rows_of(const AttentionProblem& problem, const DeviceSpec& device,
                                 const TuningDatabase& database) {
  std::vector<Measurement> rows;
  for (const TuningDatabase::Entry& entry : database.list()) {
    if (entry.device != device.name || entry.sm_count != device.sm_count || !shares_answers(entry.problem, problem))
      continue;
    for (Measurement& row : database.find_all(entry.problem, entry.device, entry.sm_count)) {
      const auto same =
          std::find_if(rows.begin(), rows.end(), [&](const Measurement& other) { return other.config == row.config; });
      if (same == rows.end()) {
        rows.push_back(std::move(row));
      } else if (row.rigor >= same->rigor) {
        *same = std::move(row);
      }
    }
  }
  return rows;
}

/// The configs that have a row, a user's own before the system's; the best first, failures last.
std::vector<Explained> tried_configs(const AttentionProblem& problem, const DeviceSpec& device,
                                     const TunedConfigs& tuned) {
  std::vector<Explained> tried;
  for (const TuningDatabase* database : {tuned.user().get(), tuned.system().get()}) {
    if (database == nullptr) continue;
    for (Measurement& row : rows_of(problem, device, *database)) {
      const KernelConfig config = row.config;
      if (std::any_of(tried.begin(), tried.end(), [&](const Explained& other) { return other.config == config; }))
        continue;
      tried.push_back(explain_config(problem, config, device, std::move(row)));
      tried.back().of_system = database == tuned.system().get();
    }
  }
  std::sort(tried.begin(), tried.end(), [](const Explained& a, const Explained& b) {
    const bool a_ok = a.row->status == MeasurementStatus::ok, b_ok = b.row->status == MeasurementStatus::ok;
    if (a_ok != b_ok) return a_ok;
    return a_ok ? ranks_before(*a.row, *b.row) : canonical_text(a.config) < canonical_text(b.config);
  });
  return tried;
}

std::string percent(double ratio) { return fmt::format("{:.1f} %", (ratio - 1) * 100); }

/// Why a config was not picked, beside the one that was.
std::string why_not_picked(const Explained& other, const Explained& pick) {
  if (!other.row) {
    return fmt::format("not tried; by the cost model its time differs from the pick's by {:+.1f} %",
                       (other.cost.microseconds / pick.cost.microseconds - 1) * 100);
  }
  const Measurement& row = *other.row;
  if (row.status != MeasurementStatus::ok) {
    return fmt::format("failed: {}{}{}", to_string(row.status), row.reason.empty() ? "" : ": ", row.reason);
  }
  if (!other.feasible()) return fmt::format("does not fit: {}", fmt::join(other.infeasible, "; "));
  if (!pick.row || pick.row->status != MeasurementStatus::ok)
    return "stored, but the pick did not come from these rows";
  if (other.of_system && !pick.of_system) return "of the system database, over which a user's own rows win";
  if (row.rigor != pick.row->rigor) {
    return fmt::format("its rigor is {}, the pick's {}", to_string(row.rigor), to_string(pick.row->rigor));
  }
  if (!other.timed() || !pick.timed()) {
    const double mine = row.ranking_us(), best = pick.row->ranking_us();
    if (mine <= 0 || best <= 0) return "has no time";
    return mine > best ? fmt::format("slower by {} by the cost model", percent(mine / best))
                       : "as fast by the cost model, and later in the fixed order";
  }
  if (is_election(*pick.row)) return "no race has told it from the pick, which stands until one does";
  if (row.race != pick.row->race && !pick.row->race.empty())
    return row.race.empty() ? "was not in the final race: its time is a probe's" : "was in an older race";
  const bool in_turns = of_one_race(row, *pick.row);
  const Comparison compared =
      in_turns ? compare_rows(row, *pick.row) : compare_times(row.samples_us, pick.row->samples_us);
  const std::string interval =
      compared.interval
          ? fmt::format(" ({:.4f} to {:.4f} times the pick's time {})", compared.interval->low, compared.interval->high,
                        in_turns ? "at 95 %" : "by the samples alone: what drifted between the runs is not in them")
          : fmt::format(" ({})", compared.reason);
  if (compared.verdict == Verdict::slower) return fmt::format("slower by {}{}", percent(compared.ratio), interval);
  if (compared.verdict == Verdict::faster) return fmt::format("faster in these samples, yet not picked{}", interval);
  const std::string difference = compared.ratio == 1
                                     ? "its median is the same: later in the fixed order"
                                     : fmt::format("its median differs by {:+.2f} %", (compared.ratio - 1) * 100);
  return compared.interval ? fmt::format("within noise of the pick{}; {}", interval, difference)
                           : fmt::format("{}{}", difference, interval);
}

/// What would find a measured answer.
std::string tune_command(const AttentionProblem& problem, const ChosenDevice& device) {
  return fmt::format("attune tune --problem \"{}\" --device {}", canonical_text(problem),
                     device.is_cuda() ? device.name : "cuda:0");
}

struct Explanation {
  AttentionProblem problem;
  ChosenDevice device;
  ConfigChoice choice;
  bool no_presets = false;  // no system database was found, or it has no rows
  bool measured = false;    // whether there is a timed row
  std::size_t rows = 0, not_shown = 0;
  std::vector<Explained> candidates;  // the pick first
  std::string tune;                   // the command; empty if the pick is exact and timed
};

Explanation explain(const ExplainOptions& options) {
  Explanation result;
  result.problem = options.problem.problem();
  result.device = options.device.choose();
  if (!result.device.why.empty()) warn(fmt::format("no --target given: explaining for {}", result.device.spec.name));
  const DeviceSpec& device = result.device.spec;
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  result.choice = options.config.pick(result.problem, device, tuned.get());
  result.no_presets = tuned->system() == nullptr || tuned->system()->list().empty();

  result.candidates = tried_configs(result.problem, device, *tuned);
  result.rows = result.candidates.size();
  result.measured = std::any_of(result.candidates.begin(), result.candidates.end(),
                                [](const Explained& candidate) { return candidate.timed(); });
  if (result.rows == 0) {
    for (const Candidate& candidate : config_space(result.problem, device)) {
      if (!candidate.feasible()) break;
      result.candidates.push_back(explain_config(result.problem, candidate.config, device, std::nullopt));
    }
  }
  const auto is_pick = [&](const Explained& candidate) { return candidate.config == result.choice.config; };
  auto pick = std::find_if(result.candidates.begin(), result.candidates.end(), is_pick);
  if (pick == result.candidates.end()) {
    result.candidates.push_back(explain_config(result.problem, result.choice.config, device, std::nullopt));
    pick = result.candidates.end() - 1;
  }
  std::rotate(result.candidates.begin(), pick, pick + 1);
  result.candidates.front().picked = true;
  if (options.limit > 0 && result.candidates.size() > options.limit) {
    result.not_shown = result.candidates.size() - options.limit;
    result.candidates.resize(options.limit);
  }
  for (Explained& candidate : result.candidates) {
    if (candidate.feasible()) candidate.occupancy = occupancy_of(result.problem, candidate, device);
  }
  for (std::size_t i = 1; i < result.candidates.size(); ++i)
    result.candidates[i].why_not = why_not_picked(result.candidates[i], result.candidates.front());
  if (result.choice.origin != ConfigOrigin::exact || !result.candidates.front().timed())
    result.tune = tune_command(result.problem, result.device);
  return result;
}

Json to_json(const Explained& candidate) {
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
    entry["database"] = candidate.of_system ? "system" : "user";
  }
  if (candidate.timed()) {
    entry["median_us"] = candidate.row->median_us;
    entry["p20_us"] = candidate.row->p20_us;
    entry["p80_us"] = candidate.row->p80_us;
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

Json to_json(const Explanation& explanation) {
  const Explained& pick = explanation.candidates.front();
  const Roofline& roofline = pick.roofline;
  const DeviceSpec& device = explanation.device.spec;
  Json document = {{"problem", canonical_text(explanation.problem)}, {"device", device.name}, {"target", device.key}};
  add_choice(document, explanation.choice);
  document["presets"] = !explanation.no_presets;
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
  for (const Explained& candidate : explanation.candidates) document["candidates"].push_back(to_json(candidate));
  document["not_shown"] = explanation.not_shown;
  return document;
}

/// "3 CTAs/SM, 1.94 waves"; "1 CTA/SM, 132 persistent CTAs (66 clusters of 2) of 7.8 tiles each".
std::string describe(const Occupancy& occupancy) {
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
    time = fmt::format("{:.1f} us ({:.1f} to {:.1f})", candidate.row->median_us, candidate.row->p20_us,
                       candidate.row->p80_us);
    if (is_election(*candidate.row)) {
      time += ", stands until a race decides";
    } else if (candidate.row->place > 0) {
      time += fmt::format(", place {} in its race", candidate.row->place);
    }
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
    if (candidate.occupancy) line += ", " + describe(*candidate.occupancy);
  }
  print(line + "\n");
  if (candidate.row && !candidate.why_not.empty()) print(fmt::format("      {}\n", candidate.why_not));
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
  if (explanation.no_presets) print_field("presets", kNoPresets);
  if (!explanation.measured)
    print_field("measured", "nothing was measured for this problem on this device: what follows is the cost model's");
  if (!explanation.tune.empty()) {
    print_field("to tune it",
                explanation.tune +
                    (explanation.device.is_cuda() ? "" : fmt::format("   (with an {})", explanation.device.spec.name)));
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

int run(const ExplainOptions& options) {
  const Explanation explanation = explain(options);
  if (options.output.json) {
    print_json(to_json(explanation));
  } else {
    print_explanation(explanation);
  }
  return kOk;
}

}  // namespace

Verb make_explain(CommandLine& command) {
  auto options = std::make_shared<ExplainOptions>();
  CommandLine* verb = add_verb(command, "explain",
                               "why a config is picked for a problem: its origin, the candidates beside it with their "
                               "times, the cost model, occupancy and roofline; needs no GPU",
                               "attune explain --target h200 --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal\n"
                               "attune explain --problem \"forward bf16 b4 hq16 sq4096 d72\" --device cuda:0 --json");
  verb->add_option("--limit", options->limit, "list at most so many candidates, 0 for all (default 10)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
