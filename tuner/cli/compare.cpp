#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "generator/error.h"
#include "tuner/cli/compared_pair.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/spread_option.h"
#include "tuner/cli/table.h"
#include "tuner/cli/verb.h"
#include "tuner/trial/trial.h"

namespace attune::cli {
namespace {

struct CompareOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  std::string a, b;
  double margin_percent = 0.5;
  std::string fail_if_slower;  ///< a percentage; empty: not asked for
  bool now = false;
  double seconds = 1;
  SpreadOption spread;
};

/// A config begins with its family; what else could a word without a space be but a file?
bool names_file(const std::string& argument) { return argument.find(' ') == std::string::npos; }

/// Opens a database that must be there and be one.
std::shared_ptr<TuningDatabase> open_compared(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    refuse(fmt::format("{}: no such file, and no config either (\"sm80 q128 kv64 w4 st2\")", path));
  auto database = TuningDatabase::open_for_reading(path);
  if (!database->unreadable_because().empty()) refuse(database->unreadable_because());
  for (const std::string& note : database->notes()) warn(note);
  return database;
}

ComparisonOptions comparison_options(const CompareOptions& options) {
  ComparisonOptions how;
  how.margin = options.margin_percent / 100;
  return how;
}

/// Everything that was compared, and what could not be.
struct Compared {
  std::vector<ComparedPair> pairs;
  std::vector<std::string> missing;  ///< sentences
  std::vector<std::string> only_a;   ///< those of problems that A alone has a result of
};

using Entry = TuningDatabase::Entry;

/// The entries that the problem flags ask for; without flags all of them.
class Filter {
 public:
  explicit Filter(const CompareOptions& options) {
    if (!options.problem.any_given()) return;
    problem_ = canonical_text(options.problem.problem());
    const ChosenDevice chosen = options.device.choose();
    if (!chosen.why.empty()) warn(fmt::format("no --target given: looking for results of {}", chosen.spec.name));
    device_ = chosen.spec;
  }
  bool takes(const Entry& entry) const {
    return problem_.empty() || (canonical_text(entry.problem) == problem_ && entry.device == device_.name &&
                                entry.sm_count == device_.sm_count);
  }
  std::string describe() const {
    return problem_.empty() ? "" : fmt::format(" of \"{}\" on {}", problem_, device_.name);
  }

 private:
  std::string problem_;
  DeviceSpec device_;
};

std::string name_of(const Entry& entry) {
  return fmt::format("\"{}\" on {} ({} SMs)", canonical_text(entry.problem), entry.device, entry.sm_count);
}

bool timed(const Measurement& row) { return row.status == MeasurementStatus::ok && row.median_us > 0; }

/// The newest timed row of the highest rigor; else the newest row of any kind.
std::optional<Measurement> row_of(const KernelConfig& config, const std::vector<Measurement>& rows) {
  std::optional<Measurement> found;
  for (const Measurement& row : rows) {
    if (!(row.config == config)) continue;
    if (!found || timed(row) > timed(*found) || (timed(row) == timed(*found) && row.rigor >= found->rigor)) found = row;
  }
  return found;
}

Compared compare_configs(const CompareOptions& options, const Filter& filter) {
  const KernelConfig a = parse_config(options.a), b = parse_config(options.b);
  Compared compared;
  const std::shared_ptr<TuningDatabase> database = options.config.open_existing_database(options.output);
  if (!database) return compared;
  for (const Entry& entry : database->list()) {
    if (!filter.takes(entry)) continue;
    const std::vector<Measurement> rows = database->find_all(entry.problem, entry.device, entry.sm_count);
    std::optional<Measurement> of_a = row_of(a, rows), of_b = row_of(b, rows);
    bool both = true;
    for (const auto& [config, row] : {std::pair(a, &of_a), std::pair(b, &of_b)}) {
      if (*row && timed(**row)) continue;
      both = false;
      compared.missing.push_back(fmt::format(
          "{}: {}", name_of(entry), *row ? describe(**row) : fmt::format("{}  not tried", canonical_text(config))));
      if (row == &of_b && of_a && timed(*of_a)) compared.only_a.push_back(compared.missing.back());
    }
    if (both) compared.pairs.push_back(compare_stored(std::move(*of_a), std::move(*of_b), comparison_options(options)));
  }
  return compared;
}

Compared compare_databases(const CompareOptions& options, const Filter& filter) {
  const std::shared_ptr<TuningDatabase> databases[] = {open_compared(options.a), open_compared(options.b)};
  const auto best = [&](int which, const Entry& entry) {
    return databases[which]->best(entry.problem, entry.device, entry.sm_count);
  };
  const std::string* names[] = {&options.a, &options.b};
  Compared compared;
  for (int which : {0, 1}) {
    for (const Entry& entry : databases[which]->list()) {
      if (!filter.takes(entry)) continue;
      auto mine = best(which, entry), other = best(1 - which, entry);
      if (mine && other) {
        if (which == 0)
          compared.pairs.push_back(compare_stored(std::move(*mine), std::move(*other), comparison_options(options)));
        continue;
      }
      // A problem that neither has a result of is told once.
      if (which == 1 && !mine && databases[0]->find_all(entry.problem, entry.device, entry.sm_count).size() > 0)
        continue;
      compared.missing.push_back(fmt::format("{}: no result in {}", name_of(entry),
                                             mine    ? *names[1 - which]
                                             : other ? *names[which]
                                                     : "either"));
      if (which == 0 && mine) compared.only_a.push_back(compared.missing.back());
    }
  }
  return compared;
}

/// Times pairs alternately on the GPU at hand: their samples are replaced by those of this minute.
class Racer {
 public:
  explicit Racer(const CompareOptions& options) : options_(options), chosen_(options.device.choose()) {
    if (!chosen_.is_cuda())
      refuse("--now times on a GPU: name one with --device cuda:N, or leave --now out to compare stored times");
    device_ = options.device.open(chosen_);
  }
  const DeviceSpec& spec() const { return chosen_.spec; }

  void race(ComparedPair& pair) {
    pair.caveats.clear();
    pair.in_turns = true;
    if (pair.a.config == pair.b.config) {
      pair.comparison = {Verdict::same, 1, Interval{1, 1}, "both are the same config"};
      return;
    }
    TrialBench bench(device_, options_.spread.apply(pair.a.problem), options_.problem.seed());
    RaceOptions race;
    race.seconds = options_.seconds;
    race.cuda_ordinal = chosen_.ordinal;
    RaceTimes times;
    try {
      times = bench.race({pair.a.config, pair.b.config}, race);
    } catch (const Error& error) {
      times.complaint = error.what();
    }
    if (!times.complaint.empty()) {
      pair.comparison = {};
      pair.comparison.reason = times.complaint;
      return;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      Measurement& row = i == 0 ? pair.a : pair.b;
      row.samples_us = times.samples_us[i];
      row.wide_samples_us.clear();
      row.clocks_mhz = times.clocks_mhz[i];
      row.protocol = times.protocol;
      row.created_at = utc_now();
      row.summarize();
    }
    pair.comparison = compare_rounds(pair.a.samples_us, pair.b.samples_us, comparison_options(options_));
  }

 private:
  const CompareOptions& options_;
  ChosenDevice chosen_;
  std::shared_ptr<Device> device_;
};

/// Two configs need no stored times if they are timed now.
Compared pair_configs(const CompareOptions& options, const DeviceSpec& spec) {
  Measurement a;
  a.problem = options.problem.problem();
  a.device = spec.name;
  a.sm_count = spec.sm_count;
  Measurement b = a;
  a.config = parse_config(options.a);
  b.config = parse_config(options.b);
  Compared compared;
  compared.pairs.push_back({std::move(a), std::move(b), {}, {}, true});
  return compared;
}

Compared compare_now(const CompareOptions& options, bool files) {
  if (!std::isfinite(options.seconds) || options.seconds <= 0)
    refuse(fmt::format("--seconds {}: must be a positive number", options.seconds));
  Racer racer(options);
  Compared compared = files ? compare_databases(options, Filter(options)) : pair_configs(options, racer.spec());
  std::vector<ComparedPair> here;
  for (ComparedPair& pair : compared.pairs) {
    if (pair.a.device != racer.spec().name || pair.a.sm_count != racer.spec().sm_count) {
      compared.missing.push_back(fmt::format("\"{}\": its results are of {} ({} SMs), the GPU here is {} ({} SMs)",
                                             canonical_text(pair.a.problem), pair.a.device, pair.a.sm_count,
                                             racer.spec().name, racer.spec().sm_count));
      continue;
    }
    racer.race(pair);
    here.push_back(std::move(pair));
  }
  compared.pairs = std::move(here);
  return compared;
}

const Table kComparisonTable = {"/comparisons",
                                {{"problem", "/problem"},
                                 {"device", "/device"},
                                 {"config_a", "/a/config"},
                                 {"config_b", "/b/config"},
                                 {"median_us_a", "/a/median_us"},
                                 {"median_us_b", "/b/median_us"},
                                 {"time_ratio", "/time_ratio"},
                                 {"low", "/interval/0"},
                                 {"high", "/interval/1"},
                                 {"verdict", "/verdict"}}};

/// "2%" or "2" as a part: 0.02. Nothing if that is not asked for.
std::optional<double> allowed_slowdown(const CompareOptions& options) {
  std::string number = options.fail_if_slower;
  if (number.empty()) return std::nullopt;
  if (number.back() == '%') number.pop_back();
  char* end = nullptr;
  const double percent = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !std::isfinite(percent) || percent < 0)
    refuse(fmt::format("--fail-if-slower {}: must be a percentage of at least 0, such as 2%", options.fail_if_slower));
  return percent / 100;
}

/// A sentence for each pair where B takes longer than A by more than is allowed. Where an interval is known, its end
/// that favours B counts; B's time over A's is one over the pair's ratio.
std::vector<std::string> slower_pairs(const Compared& compared, double allowed) {
  std::vector<std::string> sentences;
  for (const ComparedPair& pair : compared.pairs) {
    const Comparison& comparison = pair.comparison;
    const std::string name = fmt::format("\"{}\" on {}", canonical_text(pair.a.problem), pair.a.device);
    const double favourable = comparison.interval ? comparison.interval->high : comparison.ratio;
    if (favourable <= 0) {
      sentences.push_back(fmt::format("{}: {}", name, comparison.reason));
    } else if (1 / favourable > 1 + allowed) {
      sentences.push_back(fmt::format("{}: B takes {:.1f} % longer ({})", name, (1 / comparison.ratio - 1) * 100,
                                      canonical_text(pair.b.config)));
    }
  }
  return sentences;
}

int run(const CompareOptions& options) {
  const Format format = options.output.format();
  const std::optional<double> allowed = allowed_slowdown(options);
  if (!std::isfinite(options.margin_percent) || options.margin_percent < 0 || options.margin_percent >= 100)
    refuse(fmt::format("--margin {}: must be a percentage from 0 to below 100", options.margin_percent));
  const bool files = names_file(options.a);
  if (files != names_file(options.b)) {
    refuse(fmt::format("\"{}\" and \"{}\" cannot be compared: give two configs or two database files", options.a,
                       options.b));
  }
  options.spread.require_sound();
  if (options.spread.given() && !options.now)
    refuse("--spread belongs to --now: stored times have the spreads at which they were taken");
  const Filter filter(options);
  const Compared compared = options.now ? compare_now(options, files)
                            : files     ? compare_databases(options, filter)
                                        : compare_configs(options, filter);

  std::map<Verdict, int> counts;
  for (const ComparedPair& pair : compared.pairs) ++counts[pair.comparison.verdict];
  std::vector<std::string> failures;
  if (allowed) {
    failures = slower_pairs(compared, *allowed);
    failures.insert(failures.end(), compared.only_a.begin(), compared.only_a.end());
  }
  if (format != Format::text) {
    Json document = {{"status", compared.pairs.empty() ? "nothing_to_compare" : "ok"},
                     {"a", options.a},
                     {"b", options.b},
                     {"verdicts_of", "a against b"},
                     {"timed", options.now ? "now, alternately" : "when they were stored"},
                     {"confidence", ComparisonOptions().confidence},
                     {"margin", options.margin_percent / 100}};
    if (options.now) document["spread"] = options.spread.factor;
    for (const Verdict verdict : {Verdict::faster, Verdict::slower, Verdict::same, Verdict::undecidable})
      document["counts"][std::string(to_string(verdict))] = counts[verdict];
    document["comparisons"] = Json::array();
    for (const ComparedPair& pair : compared.pairs) document["comparisons"].push_back(to_json(pair));
    document["missing"] = compared.missing;
    if (allowed) document["slower"] = failures;
    print_document(document, kComparisonTable, format);
    if (format != Format::json) {
      for (const std::string& sentence : compared.missing) warn("missing: " + sentence);
      for (const std::string& sentence : failures) warn("slower: " + sentence);
    }
  } else {
    for (const ComparedPair& pair : compared.pairs) {
      print_field("problem", fmt::format("{} on {}", canonical_text(pair.a.problem), pair.a.device));
      print_field("A", fmt::format("{}  ({} samples)", describe(pair.a), pair.a.samples_us.size()));
      print_field("B", fmt::format("{}  ({} samples)", describe(pair.b), pair.b.samples_us.size()));
      if (options.now) options.spread.print();
      print_field("verdict", describe_verdict(pair));
      for (const std::string& caveat : pair.caveats) print_field("but", caveat);
    }
    for (const std::string& sentence : compared.missing) print_field("missing", sentence);
    if (compared.pairs.empty()) {
      print(fmt::format(
          "nothing to compare: no measured results of both{} in {}\n", filter.describe(),
          files ? fmt::format("{} and {}", options.a, options.b) : options.config.database_path().string()));
    } else if (compared.pairs.size() > 1) {
      print_field("in all", fmt::format("A faster {}, slower {}, same {}, not decidable {}", counts[Verdict::faster],
                                        counts[Verdict::slower], counts[Verdict::same], counts[Verdict::undecidable]));
    }
    for (const std::string& sentence : failures) print_field("slower", sentence);
  }
  return compared.pairs.empty() || !failures.empty() ? kCheckFailed : kOk;
}

}  // namespace

Verb make_compare(CommandLine& command) {
  auto options = std::make_shared<CompareOptions>();
  CommandLine* verb = add_verb(
      command, "compare",
      "compare two configs, or the best of two databases, by their stored times and say whether A is faster, slower, "
      "the "
      "same, or whether the times do not decide it. Stored times decide only if they come from one race, because no "
      "interval covers what drifted between two runs; --now times both alternately. Times of a race with wide scores "
      "are "
      "compared by the geometric mean of both spreads, as the race ranks them. The exit status is 0 whatever the "
      "verdict, and 1 if there is nothing to compare or --fail-if-slower finds something",
      "attune compare \"sm80 q128 kv64 w4 st2\" \"sm80 q64 kv64 w4 st2\" --heads 16 --seq 4096 --head-dim 128 "
      "--target h200\n"
      "attune compare before.db after.db --json\n"
      "attune compare before.db after.db --now --device cuda:0 --fail-if-slower 2%");
  verb->add_option("A", options->a, "a config in quotation marks, or a database file").required();
  verb->add_option("B", options->b, "what it is compared with: likewise").required();
  verb->add_option(
      "--margin", options->margin_percent,
      "percent: times closer than this are the same (default 0.5). Intervals hold the ratio of the medians "
      "with 95 % confidence, from order statistics");
  verb->add_option("--fail-if-slower", options->fail_if_slower,
                   "for CI: the exit status is 1 if B takes longer than A by more than this percentage, at the end of "
                   "its interval that favours B, or if only A has a result of a problem");
  verb->add_flag("--now", options->now,
                 "time both alternately on this GPU instead of comparing stored times; drift then meets both alike");
  verb->add_option("--seconds", options->seconds, "with --now: of GPU time for each pair (default 1)");
  options->spread.add_to(*verb, "with --now: ");
  options->problem.add_to(*verb, Passes::all, Sizes::optional);
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_with_table_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
