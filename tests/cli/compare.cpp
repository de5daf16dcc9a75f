// `compare` on rows with known answers: two configs of one database, and two databases.
#include <cmath>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::TuningDatabase;

namespace compare_test {
namespace {

const std::string kProblem = "forward bf16 b2 hq8 sq1024 d64 causal", kOther = "forward bf16 b2 hq8 sq2048 d64 causal";
const std::string kA = "sm80 q128 kv64 w4 st2", kB = "sm80 q64 kv64 w4 st2";

/// Samples spread evenly by `spread` about the median.
Measurement row_of(const std::string& problem, const std::string& config, double median_us, double spread = 0.002,
                   int samples = 40) {
  Measurement row = attune::test::example_measurement(problem, config);
  row.samples_us.clear();
  for (int i = 0; i < samples; ++i) row.samples_us.push_back(median_us * (1 + spread * ((i + 0.5) / samples - 0.5)));
  row.summarize();
  return row;
}

/// As of one race, of which the i-th samples of all rows are one round.
Measurement raced(Measurement row, int place) {
  row.race = "2026-01-31T12:00:00.000000Z";
  row.place = place;
  return row;
}

CommandResult compare(const std::string& a, const std::string& b, const std::string& database,
                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"compare", a, b};
  if (!database.empty()) arguments.insert(arguments.end(), {"--database", database});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_attune(arguments, kNoGpu);
}

}  // namespace

TEST_CASE("compare two configs of one race: every verdict, with its interval", "[nogpu]") {
  struct Case {
    double a, b, spread;
    int samples;
    std::string verdict;
  };
  const Case known = GENERATE(values<Case>({{95, 100, 0.002, 40, "faster"},
                                            {100, 95, 0.002, 40, "slower"},
                                            {100, 100.01, 0.002, 40, "same"},
                                            {100, 101, -0.2, 40, "not decidable"},
                                            {50, 100, 0.002, 5, "not decidable"}}));
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  {
    TuningDatabase database(path);
    // A negative spread runs against that of the other row: rounds that have nothing in common.
    database.append(raced(row_of(kProblem, kA, known.a, known.spread, known.samples), 1));
    database.append(raced(row_of(kProblem, kB, known.b, std::abs(known.spread), known.samples), 2));
  }
  const CommandResult result = compare(kA, kB, path, {"--problem", kProblem, "--target", "h200", "--json"});
  INFO(result.err);
  CHECK(result.status == 0);
  const nlohmann::json comparison = result.json().at("comparisons").at(0);
  CHECK(comparison.at("verdict") == known.verdict);
  CHECK(comparison.at("time_ratio").get<double>() == Approx(known.a / known.b).epsilon(known.spread < 0 ? 0.02 : 1e-9));
  CHECK(comparison.at("in_turns") == true);
  CHECK(result.json().at("counts").at(known.verdict) == 1);
  if (known.samples < 7) {
    CHECK_FALSE(comparison.contains("interval"));
    CHECK_THAT(comparison.at("reason").get<std::string>(), ContainsSubstring("too few rounds"));
  } else {
    CHECK(comparison.at("interval").at(0).get<double>() <= (1 + 1e-9) * known.a / known.b);
    CHECK(comparison.at("interval").at(1).get<double>() >= (1 - 1e-9) * known.a / known.b);
  }
  const CommandResult text = compare(kA, kB, path);
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring(known.verdict));
}

TEST_CASE("compare of rows of different runs: the ratio, the command that decides, and no verdict", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const int samples = GENERATE(5, 40);
  {
    TuningDatabase database(path);
    database.append(row_of(kProblem, kA, 50, 0.002, samples));
    database.append(row_of(kProblem, kB, 100, 0.002, samples));
  }
  const CommandResult result = compare(kA, kB, path, {"--json"});
  CHECK(result.status == 0);
  const nlohmann::json comparison = result.json().at("comparisons").at(0);
  CHECK(comparison.at("verdict") == "not decidable");
  CHECK(comparison.at("time_ratio").get<double>() == Approx(0.5));
  CHECK(comparison.at("in_turns") == false);
  const std::string decides = comparison.at("decided_by");
  CHECK(decides == "attune compare --now \"" + kA + "\" \"" + kB + "\" --problem \"" + kProblem + "\"");
  const std::string text = compare(kA, kB, path).out;
  if (samples < 7) {
    CHECK_THAT(comparison.at("reason").get<std::string>(), ContainsSubstring("too few samples"));
  } else {
    CHECK_THAT(comparison.at("reason").get<std::string>(), ContainsSubstring("different runs"));
    CHECK_THAT(comparison.at("interval_covers").get<std::string>(), ContainsSubstring("no drift"));
    CHECK_THAT(text, ContainsSubstring("not decidable") && ContainsSubstring(decides));
  }
  CHECK_THAT(text, !ContainsSubstring("at 95 %"));
  // A row and its copy are the same.
  const std::string copy = (folder / "copy.db").string();
  std::filesystem::copy_file(path, copy);
  CHECK(compare(path, copy, "", {"--json"}).json().at("comparisons").at(0).at("verdict") == "same");
}

TEST_CASE("compare: a database and itself are the same, whether raced or not, and of how few samples", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const bool raced = GENERATE(false, true);
  {
    attune::TuningDatabase database(path);
    attune::Measurement row = attune::test::example_measurement(kProblem, kA);
    row.samples_us = {100};
    row.clocks_mhz = {1600};
    row.summarize();
    if (raced) row.race = row.created_at;
    row.place = raced ? 1 : 0;
    database.append(row);
  }
  const nlohmann::json comparison = compare(path, path, "", {"--json"}).json().at("comparisons").at(0);
  CHECK(comparison.at("verdict") == "same");
  CHECK(comparison.at("time_ratio") == 1);
  CHECK_THAT(compare(path, path, "").out, ContainsSubstring("the same: both are one and the same stored result"));
}

TEST_CASE("compare: the margin is a choice, and other circumstances are told", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  {
    TuningDatabase database(path);
    Measurement other = row_of(kProblem, kB, 102);
    other.driver = "12.9";
    other.sm_clock_mhz = 1980;
    other.clocks_mhz.assign(other.samples_us.size(), 1980);
    database.append(raced(row_of(kProblem, kA, 100), 1));
    database.append(raced(other, 2));
  }
  const nlohmann::json strict = compare(kA, kB, path, {"--json"}).json().at("comparisons").at(0);
  CHECK(strict.at("verdict") == "faster");
  REQUIRE(strict.at("caveats").size() == 2);
  CHECK_THAT(strict.at("caveats").at(0).get<std::string>(), ContainsSubstring("drivers") && ContainsSubstring("12.9"));
  CHECK_THAT(strict.at("caveats").at(1).get<std::string>(), ContainsSubstring("1980"));
  CHECK(compare(kA, kB, path, {"--json", "--margin", "5"}).json().at("comparisons").at(0).at("verdict") == "same");
}

TEST_CASE("compare two databases: the best of each problem, and what only one has", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string before = (folder / "before.db").string(), after = (folder / "after.db").string();
  {
    TuningDatabase a(before), b(after);
    a.append(raced(row_of(kProblem, kA, 100), 2));
    a.append(row_of(kProblem, kB, 150));
    a.append(row_of(kOther, kA, 400));
    b.append(row_of(kProblem, kA, 100));
    b.append(raced(row_of(kProblem, kB, 80), 1));
  }
  const CommandResult result = compare(before, after, "", {"--json"});
  INFO(result.err);
  CHECK(result.status == 0);
  const nlohmann::json document = result.json();
  REQUIRE(document.at("comparisons").size() == 1);
  const nlohmann::json& comparison = document.at("comparisons").at(0);
  CHECK(comparison.at("problem") == kProblem);
  CHECK(comparison.at("verdict") == "slower");
  CHECK(comparison.at("a").at("config") == kA);
  CHECK(comparison.at("b").at("config") == kB);
  REQUIRE(document.at("missing").size() == 1);
  CHECK_THAT(document.at("missing").at(0).get<std::string>(), ContainsSubstring(kOther) && ContainsSubstring(after));
  CHECK(compare(before, after, "", {"--problem", kOther, "--target", "h200"}).status == 1);
}

TEST_CASE("compare --fail-if-slower: what B may lose, and what only A has", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string before = (folder / "before.db").string(), after = (folder / "after.db").string();
  {
    TuningDatabase a(before), b(after);
    a.append(row_of(kProblem, kA, 100));
    b.append(row_of(kProblem, kA, 103));
  }
  const auto status_of = [&](const std::string& allowed) {
    return compare(before, after, "", {"--fail-if-slower", allowed}).status;
  };
  CHECK(compare(before, after, "").status == 0);
  CHECK(status_of("5%") == 0);
  CHECK(status_of("3.1") == 0);
  CHECK(status_of("2%") == 1);
  CHECK(status_of("0") == 1);
  CHECK(compare(after, before, "", {"--fail-if-slower", "0"}).status == 0);  // faster
  const CommandResult slower = compare(before, after, "", {"--fail-if-slower", "2%", "--format", "json"});
  CHECK_THAT(slower.json().at("slower").at(0).get<std::string>(),
             ContainsSubstring(kProblem) && ContainsSubstring("B takes 3.0 % longer (" + kA + ")"));
  // So noisy that it may be 2 % only.
  TuningDatabase(after).append(row_of(kOther, kA, 103, 0.2));
  TuningDatabase(before).append(row_of(kOther, kA, 100, 0.2));
  CHECK(compare(before, after, "", {"--fail-if-slower", "2%", "--problem", kOther, "--target", "h200"}).status == 0);
  // A problem that B has lost.
  TuningDatabase(before).append(row_of("forward bf16 b1 hq8 sq512 d64", kA, 50));
  const CommandResult lost = compare(before, after, "", {"--fail-if-slower", "50%"});
  CHECK(lost.status == 1);
  CHECK_THAT(lost.out,
             ContainsSubstring("slower") && ContainsSubstring("sq512 d64\" on") && ContainsSubstring("no result in"));
  CHECK(compare(after, before, "", {"--fail-if-slower", "50%"}).status == 0);
  for (const char* bad : {"-1", "much", "%", "2%%", "nan", "inf"}) {
    const CommandResult refused = compare(before, after, "", {"--fail-if-slower", bad});
    CHECK(refused.status == 2);
    CHECK_THAT(refused.err, ContainsSubstring("--fail-if-slower"));
  }
}

TEST_CASE("compare --fail-if-slower: a config of B that does not run", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  {
    TuningDatabase database(path);
    Measurement failed = row_of(kProblem, kB, 0, 0, 0);
    failed.status = attune::MeasurementStatus::crashed;
    database.append(row_of(kProblem, kA, 100));
    database.append(failed);
    database.append(row_of(kOther, kA, 100));
    database.append(row_of(kOther, kB, 100));
  }
  CHECK(compare(kA, kB, path).status == 0);
  CHECK(compare(kA, kB, path, {"--fail-if-slower", "2%"}).status == 1);
  CHECK(compare(kB, kA, path, {"--fail-if-slower", "2%"}).status == 0);
}

TEST_CASE("compare with nothing to compare: exit status 1, and why", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const CommandResult none = compare(kA, kB, path, {"--json"});
  CHECK(none.status == 1);
  CHECK(none.json().at("status") == "error");
  CHECK_THAT(none.json().at("message").get<std::string>(), ContainsSubstring("there is no such database: " + path));
  CHECK_FALSE(std::filesystem::exists(path));
  {
    TuningDatabase database(path);
    Measurement failed = row_of(kProblem, kB, 0, 0, 0);
    failed.status = attune::MeasurementStatus::crashed;
    failed.reason = "signal 11";
    database.append(row_of(kProblem, kA, 100));
    database.append(failed);
  }
  const CommandResult result = compare(kA, kB, path);
  CHECK(result.status == 1);
  CHECK_THAT(result.out, ContainsSubstring("crashed: signal 11") && ContainsSubstring("nothing to compare"));
  CHECK_THAT(compare(kA, "sm80 q32 kv64 w2 st2", path).out, ContainsSubstring("not tried"));
}

TEST_CASE("compare refuses what it cannot compare, and leaves foreign files alone", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string(), foreign = (folder / "notes.txt").string();
  TuningDatabase(path).append(row_of(kProblem, kA, 100));
  write_file(foreign, "no database at all");
  const auto refused = [](const CommandResult& result, const std::string& part) {
    INFO(result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  refused(compare(kA, path, path), "two configs or two database files");
  refused(compare(path, (folder / "gone.db").string(), ""), "gone.db: no such file");
  refused(compare(path, foreign, ""), "notes.txt is not a tuning database");
  CHECK(read_file(foreign) == "no database at all");
  refused(compare(kA, "sm80 q64 zz9", path), "zz9");
  refused(compare(kA, kB, path, {"--margin", "-1"}), "--margin -1");
  refused(run_attune({"compare", kA}, kNoGpu), "B");
}

TEST_CASE("rows of one race are compared round by round", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const bool raced = GENERATE(true, false);
  {
    TuningDatabase database(path);
    for (const bool first : {true, false}) {
      Measurement row = attune::test::example_measurement(kProblem, first ? kA : kB);
      row.samples_us.clear();
      for (int round = 0; round < 40; ++round) row.samples_us.push_back((first ? 100 : 101) * (1 + 0.3 * round / 40));
      row.summarize();
      if (raced) {
        row.race = "2026-01-31T12:00:00.000000Z";
        row.place = first ? 1 : 2;
      }
      database.append(row);
    }
  }
  const CommandResult result = compare(kA, kB, path, {"--json"});
  INFO(result.err);
  CHECK(result.json().at("comparisons").at(0).at("verdict") == (raced ? "faster" : "not decidable"));
}

TEST_CASE("rows of a race with wide scores are compared by both spreads, and the text says so", "[nogpu]") {
  const bool of_one_race = GENERATE(true, false);
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  {
    TuningDatabase database(path);
    for (const bool first : {true, false}) {
      Measurement row = raced(row_of(kProblem, first ? kA : kB, first ? 100 : 104), first ? 2 : 1);
      if (!of_one_race && first) row.race = "2026-01-30T12:00:00.000000Z";
      for (const double us : row.samples_us) row.wide_samples_us.push_back(us * (first ? 1.4 : 1.02));
      row.summarize();
      database.append(row);
    }
  }
  const nlohmann::json comparison = compare(kA, kB, path, {"--json"}).json().at("comparisons").at(0);
  CHECK(comparison.at("verdict") == (of_one_race ? "slower" : "not decidable"));
  CHECK(comparison.at("time_ratio").get<double>() == Approx(std::sqrt(100 * 140 / (104 * 104 * 1.02))).epsilon(1e-3));
  CHECK_THAT(comparison.at("by").get<std::string>(), ContainsSubstring("geometric mean"));
  CHECK(comparison.at("a").at("wide_median_us").get<double>() == Approx(140));
  const std::string text = compare(kA, kB, path).out;
  CHECK_THAT(text, ContainsSubstring("140.0 us at 8 times the spread") &&
                       ContainsSubstring("of B's geometric mean of the times at the problem's own spread and at 8"));
  const CommandResult best = run_attune({"db", "best", "--database", path}, kNoGpu);
  CHECK_THAT(best.out, ContainsSubstring(kB) && ContainsSubstring("106.1 us at 8 times the spread"));
  const CommandResult explained =
      run_attune({"explain", "--problem", kProblem, "--target", "h200", "--database", path}, kNoGpu);
  if (!of_one_race) {
    CHECK_THAT(text, ContainsSubstring("at the other spread with --spread 8"));
    return;
  }
  CHECK_THAT(explained.out, ContainsSubstring("106.1 us at 8 times the spread") &&
                                ContainsSubstring("slower by 12.6 %") &&
                                ContainsSubstring("times the pick's mean over both spreads"));
}

TEST_CASE("compare --now needs a GPU, and says so", "[nogpu]") {
  const CommandResult hidden = compare(kA, kB, "", {"--now", "--problem", kProblem, "--device", "cuda:0"});
  CHECK(hidden.status == 2);
  CHECK_THAT(hidden.err, ContainsSubstring("needs a GPU"));
  const CommandResult emulator = compare(kA, kB, "", {"--now", "--problem", kProblem, "--device", "emulator"});
  CHECK(emulator.status == 2);
  CHECK_THAT(emulator.err, ContainsSubstring("--device cuda:N"));
  const CommandResult seconds = compare(kA, kB, "", {"--now", "--problem", kProblem, "--seconds", "0"});
  CHECK(seconds.status == 2);
  CHECK_THAT(seconds.err, ContainsSubstring("--seconds 0"));
}

TEST_CASE("compare --now times two configs, and the bests of two databases, alternately", "[gpu]") {
  const std::string problem = "forward bf16 b2 hq8 sq2048 d64";
  const auto now = [&](const std::string& a, const std::string& b) {
    const CommandResult result = run_attune(
        {"compare", a, b, "--now", "--seconds", "0.3", "--device", "cuda:0", "--problem", problem, "--json"});
    INFO(result.err);
    REQUIRE(result.status == 0);
    return result.json();
  };
  // One warp of 16 rows reads K and V eight times as often.
  const nlohmann::json configs = now("sm80 q128 kv64 w4 st2", "sm80 q16 kv16 w1 st1 qsmem");
  CHECK(configs.at("timed") == "now, alternately");
  CHECK(configs.at("comparisons").at(0).at("verdict") == "faster");
  CHECK(configs.at("comparisons").at(0).at("time_ratio").get<double>() < 0.8);
  CHECK(configs.at("comparisons").at(0).at("a").at("samples").get<int>() >= 15);

  CHECK(configs.at("spread") == 1);
  const CommandResult wide =
      run_attune({"compare", "sm80 q128 kv64 w4 st2", "sm80 q16 kv16 w1 st1 qsmem", "--now", "--spread", "8",
                  "--seconds", "0.3", "--device", "cuda:0", "--problem", problem});
  INFO(wide.err);
  CHECK(wide.status == 0);
  CHECK_THAT(wide.out, ContainsSubstring("A is faster") && ContainsSubstring("8: scores are so many times as wide"));

  const attune::test::TemporaryFolder folder;
  for (const char* name : {"a.db", "b.db"}) {
    const CommandResult tuned = run_attune({"tune", "--max-candidates", "2", "--device", "cuda:0", "--problem", problem,
                                            "--database", (folder / name).string()});
    INFO(tuned.err);
    REQUIRE(tuned.status == 0);
  }
  const nlohmann::json databases = now((folder / "a.db").string(), (folder / "b.db").string());
  REQUIRE(databases.at("comparisons").size() == 1);
  CHECK(databases.at("comparisons").at(0).at("time_ratio").get<double>() == Approx(1).margin(0.1));
}

}  // namespace compare_test
