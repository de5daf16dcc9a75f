#include "tuner/sweep/sweep_race.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/sweep/fake_worker.h"
#include "tests/tuner/test_files.h"
#include "tuner/search/race.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::expected_order;
using attune::test::fake_worker;
using attune::test::kProblem;
using attune::test::options_for;
using attune::test::requests;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("a race decides, and its rows say so", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(6);
  const AttentionProblem problem = parse_problem(kProblem);
  // By their trials the second is the fastest, by luck; the third and the fourth are within reach, the fifth is not.
  const auto worker = [&](const std::string& on_race) {
    return fake_worker(folder, {.on_trial = fmt::format(R"sh(case "$config" in
      "{}") measured 100 ;; "{}") measured 80 ;; "{}") measured 81 ;; "{}") measured 82 ;; *) measured 99 ;; esac)sh",
                                                        order[0], order[1], order[2], order[3]),
                                .on_race = on_race});
  };
  const auto times = [](const std::vector<double>& of_finalists, std::vector<double> wide = {}) {
    if (wide.empty()) wide = of_finalists;
    const auto rounds = [](const std::vector<double>& each) {
      std::vector<std::string> lists;
      for (const double time : each) lists.push_back(fmt::format("[{}]", fmt::join(std::vector(8, time), ",")));
      return fmt::format("[{}]", fmt::join(lists, ","));
    };
    return fmt::format(
        R"sh(echo '{{"race":{{"samples_us":{},"wide_samples_us":{},"clocks_mhz":{},"protocol":"in turns"}}}}')sh",
        rounds(of_finalists), rounds(wide), rounds(std::vector<double>(of_finalists.size(), 1500)));
  };
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for("", 6);
  options.trial_timeout_seconds = 1;

  SECTION("the faster in turns wins, whatever the trials said") {
    options.command = worker(times({85, 84, 80, 100}));
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(requests(folder, "race") == std::multiset<std::string>{fmt::format("\"{}\",\"{}\",\"{}\",\"{}\"", order[1],
                                                                               order[2], order[3], order[0])});
    REQUIRE(result.notes.empty());
    REQUIRE(result.finalists.size() == 4);
    const std::string expected[] = {order[3], order[2], order[1], order[0]};
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(canonical_text(result.finalists[i].config) == expected[i]);
      REQUIRE(result.finalists[i].place == static_cast<int>(i) + 1);
      REQUIRE(result.finalists[i].race == result.finalists[0].race);
      REQUIRE(result.finalists[i].samples_us.size() == 8);
      REQUIRE(result.finalists[i].protocol == "in turns");
      REQUIRE(result.finalists[i].sm_clock_mhz == 1500);
    }
    REQUIRE_FALSE(result.finalists[0].race.empty());
    REQUIRE(result.best->median_us == 80);
    REQUIRE(result.default_measurement->place == 4);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[3]);
    // The same finalists are not raced again.
    fs::remove(folder / "requests");
    const SweepResult again = sweep(problem, options, database);
    REQUIRE(again.race_reused);
    REQUIRE(requests(folder, "race").empty());
    REQUIRE(canonical_text(again.best->config) == order[3]);
  }
  SECTION("the fastest with the problem's own scores loses to one that is even on both spreads") {
    options.command = worker(times({80, 84, 85, 100}, {140, 86, 90, 100}));
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(result.notes.empty());
    REQUIRE(canonical_text(result.best->config) == order[2]);
    const auto best = database.best(problem, "NVIDIA H200", 132);
    REQUIRE(canonical_text(best->config) == order[2]);
    REQUIRE(best->median_us == 84);
    REQUIRE(best->wide_median_us == 86);
    REQUIRE(best->wide_samples_us == std::vector<double>(8, 86));
    REQUIRE(canonical_text(result.finalists.back().config) == order[1]);
  }
  SECTION("the default wins a tie") {
    options.command = worker(times({80, 80, 80, 80.3}));
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(canonical_text(result.best->config) == order[0]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[0]);
  }
  SECTION("a race that fails elects the default, and is noted") {
    const std::string short_of_wide = times({80, 84, 85, 100}, {80, 84, 85});
    const std::string failure =
        GENERATE_REF(as<std::string>{}, "exec sleep 100", "exit 3", "echo nonsense",
                     R"(echo '{"failed":"launch_failed","reason":"too hot"}')",
                     R"(echo '{"race":{"samples_us":[[1],[1]],"clocks_mhz":[[1],[1]],"protocol":"x"}}')",
                     R"(echo '{"race":{"samples_us":"many"}}')", short_of_wide);
    INFO(failure);
    options.command = worker(failure);
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(result.finalists.empty());
    REQUIRE(result.notes.size() == 1);
    REQUIRE_THAT(result.notes[0], ContainsSubstring("race"));
    REQUIRE_FALSE(result.not_stored);
    REQUIRE(canonical_text(result.best->config) == order[0]);
    REQUIRE(database.find_all(problem, "NVIDIA H200", 132).size() == 6);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[0]);
    REQUIRE(is_election(*database.best(problem, "NVIDIA H200", 132)));
    REQUIRE(database.list().at(0).raced == 0);
    // What a race decides later counts, and still does after another that failed.
    options.command = worker(times({80, 84, 85, 100}));
    REQUIRE(canonical_text(sweep(problem, options, database).best->config) == order[1]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[1]);
    options.rigor = Rigor::patient;  // for which all is tried again
    options.command = worker(failure);
    const SweepResult again = sweep(problem, options, database);
    REQUIRE(again.reused == 0);
    REQUIRE(canonical_text(again.best->config) == order[1]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[1]);
  }
}

TEST_CASE("a backward race knows no wide scores", "[nogpu]") {
  const TemporaryFolder folder;
  const AttentionProblem problem = parse_problem("backward bf16 b1 hq8 sq1024 d64");
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(problem, options_for(fake_worker(folder, {"measured 80"}), 2), database);
  REQUIRE(result.notes.empty());
  REQUIRE(result.finalists.size() == 2);
  for (const Measurement& row : result.finalists) {
    REQUIRE(row.samples_us.size() == 8);
    REQUIRE(row.wide_samples_us.empty());
    REQUIRE(row.wide_median_us == 0);
  }
  REQUIRE(raced_together(result.finalists));
}

TEST_CASE("a forward race that timed no wide scores is run again", "[nogpu]") {
  std::vector<Measurement> rows(2, example_measurement());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].race = "2026-01-31T12:00:00Z";
    rows[i].place = static_cast<int>(i) + 1;
  }
  REQUIRE_FALSE(raced_together(rows));
  for (Measurement& row : rows) row.wide_median_us = 120;
  REQUIRE(raced_together(rows));
  rows[1].wide_median_us = 0;
  REQUIRE_FALSE(raced_together(rows));
}
