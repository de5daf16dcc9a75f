#include "tuner/cli/compared_pair.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tuner/search/race.h"

namespace attune::cli {
namespace {

/// What two rows are compared by.
std::string basis_of(const ComparedPair& pair) {
  return have_both_spreads(pair.a, pair.b)
             ? fmt::format("geometric mean of the times at the problem's own spread and at {} times it", kWideSpread)
             : "time";
}

/// What would decide between two stored rows.
std::string command_that_decides(const ComparedPair& pair) {
  return fmt::format("attune compare --now \"{}\" \"{}\" --problem \"{}\"", canonical_text(pair.a.config),
                     canonical_text(pair.b.config), canonical_text(pair.a.problem));
}

}  // namespace

ComparedPair compare_stored(Measurement a, Measurement b, const ComparisonOptions& options) {
  ComparedPair pair{std::move(a), std::move(b), {}, {}, false};
  pair.in_turns = of_one_race(pair.a, pair.b);
  pair.comparison = compare_rows(pair.a, pair.b, options);
  const auto note = [&](const char* what, const std::string& of_a, const std::string& of_b) {
    if (of_a != of_b) pair.caveats.push_back(fmt::format("{} differ: {} and {}", what, of_a, of_b));
  };
  // Two configs have two sources; what version 0.1 knew of sources is the same for all configs of a family.
  const bool a_old = pair.a.source_hash.starts_with(kTemplatesMark),
             b_old = pair.b.source_hash.starts_with(kTemplatesMark);
  if (a_old == b_old && (a_old || pair.a.config == pair.b.config))
    note("sources", pair.a.source_hash, pair.b.source_hash);
  note("compilers", pair.a.compiler, pair.b.compiler);
  note("drivers", pair.a.driver, pair.b.driver);
  note("protocols", pair.a.protocol, pair.b.protocol);
  constexpr double kSameClock = 0.02;
  const int of_a = pair.a.sm_clock_mhz, of_b = pair.b.sm_clock_mhz;
  if (of_a > 0 && of_b > 0 && std::abs(of_a - of_b) > kSameClock * std::max(of_a, of_b))
    pair.caveats.push_back(fmt::format("SM clocks differ: {} and {} MHz", of_a, of_b));
  return pair;
}

std::string describe_verdict(const ComparedPair& pair) {
  const Comparison& comparison = pair.comparison;
  const std::string time = basis_of(pair);
  if (comparison.verdict == Verdict::undecidable && !pair.in_turns && comparison.interval) {
    return fmt::format(
        "not decidable: {}. By their samples alone A takes {:.4f} of B's {} ({:.4f} to {:.4f}); `{}` times "
        "both alternately{}",
        comparison.reason, comparison.ratio, time, comparison.interval->low, comparison.interval->high,
        command_that_decides(pair),
        have_both_spreads(pair.a, pair.b) ? fmt::format(", at the other spread with --spread {}", kWideSpread) : "");
  }
  const std::string interval = comparison.interval
                                   ? fmt::format("A takes {:.4f} to {:.4f} of B's {} at 95 %", comparison.interval->low,
                                                 comparison.interval->high, time)
                                   : "";
  switch (comparison.verdict) {
    case Verdict::faster:
      return fmt::format("A is faster: {:.1f} % less time ({})", (1 - comparison.ratio) * 100, interval);
    case Verdict::slower:
      return fmt::format("A is slower: {:.1f} % more time ({})", (comparison.ratio - 1) * 100, interval);
    case Verdict::same:
      return comparison.reason.empty() ? fmt::format("the same ({})", interval) : "the same: " + comparison.reason;
    case Verdict::undecidable:
      break;
  }
  return fmt::format("not decidable: {}{}", comparison.reason, interval.empty() ? "" : " (" + interval + ")");
}

Json to_json(const ComparedPair& pair) {
  Json entry = {{"problem", canonical_text(pair.a.problem)},
                {"device", pair.a.device},
                {"sm_count", pair.a.sm_count},
                {"verdict", to_string(pair.comparison.verdict)}};
  if (pair.comparison.ratio > 0) entry["time_ratio"] = pair.comparison.ratio;
  if (pair.comparison.interval) entry["interval"] = {pair.comparison.interval->low, pair.comparison.interval->high};
  if (!pair.comparison.reason.empty()) entry["reason"] = pair.comparison.reason;
  entry["in_turns"] = pair.in_turns;
  entry["by"] = basis_of(pair);
  if (pair.comparison.interval)
    entry["interval_covers"] = pair.in_turns ? "drift and noise" : "the noise of the samples, no drift between runs";
  if (pair.comparison.verdict == Verdict::undecidable) entry["decided_by"] = command_that_decides(pair);
  for (const auto& [name, row] : {std::pair("a", &pair.a), std::pair("b", &pair.b)}) {
    entry[name] = {{"config", canonical_text(row->config)},
                   {"rigor", to_string(row->rigor)},
                   {"median_us", row->median_us},
                   {"samples", row->samples_us.size()},
                   {"created_at", row->created_at}};
    if (row->wide_median_us > 0) entry[name]["wide_median_us"] = row->wide_median_us;
  }
  if (!pair.caveats.empty()) entry["caveats"] = pair.caveats;
  return entry;
}

}  // namespace attune::cli
