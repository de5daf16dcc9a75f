#include "tuner/database/tuning_database.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "attune/log.h"
#include "generator/error.h"
#include "tests/catch.h"
#include "tests/scoped_variable.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::example_measurement;
using attune::test::numbered;
using attune::test::require_equal;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::testing::ScopedVariable;
namespace fs = std::filesystem;

namespace tuning_database_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

}  // namespace

TEST_CASE("a row comes back as it was stored", "[nogpu]") {
  const TemporaryFolder folder;
  Measurement row = example_measurement();
  row.wide_samples_us = {120, 1.0 / 3, 140};
  row.wide_median_us = 120;
  row.node = {"node-17", "GPU-1", "580.159.04", 700, 1980, 3201};
  Measurement failed = example_measurement();
  failed.status = MeasurementStatus::wrong_result;
  failed.reason = "o: element 17 is NaN; 'quoted' -- and, \"twice\"";
  failed.samples_us.clear();
  failed.clocks_mhz.clear();
  failed.summarize();
  failed.error_o = std::numeric_limits<double>::quiet_NaN();
  failed.error_lse = std::numeric_limits<double>::infinity();
  failed.created_at = "2025-01-31T12:00:01.000000Z";
  {
    TuningDatabase database(folder / "sub/folder/tuning.db");
    REQUIRE_FALSE(database.read_only());
    REQUIRE(database.notes().empty());
    database.append(row);
    database.append(failed);
  }
  TuningDatabase database(folder / "sub/folder/tuning.db");
  const auto rows = database.find_all(row.problem, kDevice, kSms);
  REQUIRE(rows.size() == 2);
  require_equal(rows[0], row);
  require_equal(rows[1], failed);
  REQUIRE(database.find_all(row.problem, kDevice, kSms - 1).empty());
  REQUIRE(database.find_all(row.problem, "NVIDIA A100", kSms).empty());
  REQUIRE(database.latest(row.problem, kDevice, kSms).size() == 1);
  require_equal(database.latest(row.problem, kDevice, kSms)[0], failed);
  REQUIRE_FALSE(database.best(row.problem, kDevice, kSms));

  const auto entries = database.list();
  REQUIRE(entries.size() == 1);
  REQUIRE(entries[0].problem == row.problem);
  REQUIRE(entries[0].rows == 2);
  REQUIRE(entries[0].ok == 1);

  const fs::path file = folder / "sub/folder/tuning.db";
  REQUIRE(ask_sql(file, "PRAGMA user_version") == 8);
  REQUIRE(ask_sql(file, "PRAGMA application_id") == 0x4174746e);
  REQUIRE(ask_sql(file,
                  "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 AND "
                  "name NOT LIKE 'sqlite%'") == 0);
}

TEST_CASE("an equal row is stored once, an empty date becomes the present", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  Measurement row = example_measurement();
  database.append(row);
  database.append(row);
  REQUIRE(database.find_all(row.problem, kDevice, kSms).size() == 1);
  row.samples_us[1] = std::nextafter(row.samples_us[1], 1e9);
  database.append(row);
  REQUIRE(database.find_all(row.problem, kDevice, kSms).size() == 2);
  row.created_at.clear();
  database.append(row);
  const auto rows = database.find_all(row.problem, kDevice, kSms);
  REQUIRE(rows.size() == 3);
  REQUIRE(rows[2].created_at > "2025-06-01");
  REQUIRE(rows[2].created_at.size() == rows[0].created_at.size());
}

TEST_CASE("best: the newest row of each config, the highest rigor, the fastest, ties by text", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const std::string problem = "forward fp16 b1 hq4 sq512 d128";
  const auto add = [&](const std::string& config, double us, Rigor rigor = Rigor::measure,
                       MeasurementStatus status = MeasurementStatus::ok) {
    Measurement row = example_measurement(problem, config, us);
    row.rigor = rigor;
    row.status = status;
    if (rigor == Rigor::estimate) {
      row.samples_us.clear();
      row.summarize();
      row.predicted_us = us;
    }
    row.created_at.clear();
    database.append(row);
  };
  const auto best = [&]() -> std::string {
    const auto row = database.best(parse_problem(problem), kDevice, kSms);
    return row ? canonical_text(row->config) : "nothing";
  };
  const std::string a = "sm80 q64 kv64 w4 st2", b = "sm80 q128 kv64 w4 st2", c = "sm80 q128 kv128 w8 st2";
  REQUIRE(best() == "nothing");
  add(a, 1, Rigor::estimate);
  add(b, 2, Rigor::estimate);
  REQUIRE(best() == a);
  add(b, 90);  // measured beats any estimate
  REQUIRE(best() == b);
  add(c, 80);
  REQUIRE(best() == c);
  add(c, 95);  // the newest row of a config counts
  REQUIRE(best() == b);
  add(c, 90);  // a tie: the smaller canonical text
  REQUIRE(best() == std::min(b, c));
  add(a, 10, Rigor::measure, MeasurementStatus::wrong_result);
  REQUIRE(best() == std::min(b, c));
  add(c, 300, Rigor::patient);
  REQUIRE(best() == c);
  // A config whose measurement failed is not chosen for an estimate that is newer.
  add(c, 300, Rigor::patient, MeasurementStatus::crashed);
  add(b, 90, Rigor::measure, MeasurementStatus::crashed);
  add(a, 1, Rigor::estimate);
  REQUIRE(best() == "nothing");
}

TEST_CASE("best: a race decides among rows of one rigor, the newest race, then the place in it", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const std::string problem = "forward fp16 b1 hq4 sq512 d128";
  const std::string a = "sm80 q64 kv64 w4 st2", b = "sm80 q128 kv64 w4 st2", c = "sm80 q128 kv128 w8 st2";
  const std::string first_race = "2025-01-31T12:00:00.000000Z", second_race = "2025-02-01T12:00:00.000000Z";
  const auto add = [&](const std::string& config, double us, const std::string& race = "", int place = 0,
                       Rigor rigor = Rigor::measure) {
    Measurement row = example_measurement(problem, config, us);
    row.race = race;
    row.place = place;
    row.rigor = rigor;
    row.created_at.clear();
    database.append(row);
  };
  const auto best = [&] {
    const auto row = database.best(parse_problem(problem), kDevice, kSms);
    return row ? canonical_text(row->config) : "nothing";
  };
  add(c, 10);
  REQUIRE(best() == c);
  add(a, 90, first_race, 2);
  add(b, 90.1, first_race, 1);
  REQUIRE(best() == b);  // neither the median of the second nor a lucky probe beats the winner
  REQUIRE(database.best(parse_problem(problem), kDevice, kSms)->place == 1);
  REQUIRE(database.best(parse_problem(problem), kDevice, kSms)->race == first_race);
  SECTION("a newer race, whatever its times") {
    add(a, 120, second_race, 1);
    REQUIRE(best() == a);
  }
  SECTION("an older race that is merged later") {
    Measurement older = example_measurement(problem, c, 20);
    older.race = "2026-01-01T12:00:00.000000Z";
    older.place = 1;
    database.append_all({older});  // of a version that numbered nothing
    REQUIRE(best() == b);
    older.sequence = 1;
    database.append_all({older});
    REQUIRE(best() == b);
  }
  SECTION("a race whose machine's clock runs ahead does not win for ever") {
    add(c, 20, "2046-01-01T12:00:00.000000Z", 1);
    REQUIRE(best() == c);
    add(a, 120, second_race, 1);
    REQUIRE(best() == a);
  }
  SECTION("a higher rigor, raced or not") {
    add(c, 500, "", 0, Rigor::patient);
    REQUIRE(best() == c);
  }
  SECTION("a config stands for itself by its newest row: a failed one takes the winner out") {
    Measurement failed = example_measurement(problem, b, 1);
    failed.status = MeasurementStatus::crashed;
    failed.created_at.clear();
    database.append(failed);
    REQUIRE(best() == a);
  }
  SECTION("what the query says is what ranks_before() says") {
    add("sm80 q64 kv32 w4 st2", 80, first_race, 3);
    add("sm80 q64 kv128 w4 st2", 80, second_race, 2);
    add("sm80 q128 kv32 w4 st2", 80, second_race, 1);
    add("sm80 q128 kv32 w8 st2", 8);
    auto rows = database.latest(parse_problem(problem), kDevice, kSms);
    std::sort(rows.begin(), rows.end(), ranks_before);
    REQUIRE(rows.size() == 7);
    REQUIRE(best() == canonical_text(rows.front().config));
    REQUIRE(best() == "sm80 q128 kv32 w4 st2");
  }
}

TEST_CASE("sequence: each new row is newer than all that is stored, whatever the clocks say", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  Measurement row = example_measurement();
  const auto stored = [&] { return database.find_all(row.problem, kDevice, kSms); };
  row.created_at = "2046-01-01T00:00:00Z";
  database.append(row);
  row.created_at = "2026-01-01T00:00:00Z";
  row.samples_us = {80, 81, 82};
  row.summarize();
  database.append(row);
  REQUIRE(stored().size() == 2);
  REQUIRE(stored()[0].sequence == 1);
  REQUIRE(stored()[1].sequence == 2);
  REQUIRE(stored()[1].created_at == "2026-01-01T00:00:00.000000Z");
  REQUIRE(database.best(row.problem, kDevice, kSms)->median_us == 81);
  REQUIRE(database.latest(row.problem, kDevice, kSms).front().median_us == 81);

  SECTION("rows of elsewhere keep theirs, and the next is greater") {
    Measurement foreign = example_measurement("forward bf16 b1 hq8 sq512 d64");
    foreign.sequence = 1000;
    REQUIRE(database.append_all({foreign}).added == 1);
    row.created_at.clear();
    database.append(row);
    REQUIRE(stored().back().sequence == 1001);
  }
  SECTION("the rows of a race share one, stored together or not") {
    Measurement first = row, second = example_measurement(canonical_text(row.problem), "sm80 q64 kv64 w4 st2", 90);
    first.race = second.race = "2026-01-02T00:00:00Z";
    first.place = 1;
    second.place = 2;
    Measurement third = example_measurement(canonical_text(row.problem), "sm80 q64 kv32 w4 st2", 95);
    third.race = first.race;
    third.place = 3;
    database.append(std::vector{first, second});
    database.append(row);
    database.append(third);
    for (const Measurement& each : stored()) REQUIRE((each.race.empty() || each.sequence == 3));
  }
  SECTION("beyond what is counted to is refused, and what was given with it") {
    for (const std::int64_t sequence : {kGreatestForeignSequence + 1, kGreatestSequence + 1,
                                        std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}}) {
      Measurement foreign = example_measurement("forward bf16 b1 hq8 sq512 d64"), beside = foreign;
      foreign.sequence = sequence;
      INFO(sequence);
      REQUIRE_THROWS_WITH(database.append_all({beside, foreign}), ContainsSubstring("sequence"));
      REQUIRE(database.list().size() == 1);
    }
    // The greatest that is taken still leaves room for a newer one.
    Measurement foreign = row;
    foreign.sequence = kGreatestForeignSequence;
    foreign.created_at = "2046-01-01T00:00:00Z";
    REQUIRE(database.append_all({foreign}).added == 1);
    row.created_at = "2026-01-02T00:00:00Z";
    row.samples_us = {70, 71, 72};
    row.summarize();
    database.append(row);
    REQUIRE(database.best(row.problem, kDevice, kSms)->median_us == 71);
  }
}

TEST_CASE("rows that were changed, or cannot have been measured, count nowhere and are told once", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const std::string a = "sm80 q64 kv64 w4 st2", b = "sm80 q128 kv64 w4 st2";
  Measurement honest = example_measurement(), other = example_measurement(canonical_text(honest.problem), a, 90);
  {
    TuningDatabase database(file);
    database.append(honest);
    database.append(other);
  }
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
  struct Restore {
    ~Restore() { set_log_sink(nullptr); }
  } restore;
  const auto best = [&](const TuningDatabase& database) {
    const auto row = database.best(honest.problem, kDevice, kSms);
    return row ? canonical_text(row->config) : "nothing";
  };
  REQUIRE(best(TuningDatabase(file)) == a);
  REQUIRE(said.empty());

  SECTION("a changed time") {
    run_sql(file, "UPDATE measurement SET median_us = 0.21 WHERE config = '" + b + "'");
    const TuningDatabase database(file);
    REQUIRE(best(database) == a);
    REQUIRE(best(database) == a);
    REQUIRE(database.find_all(honest.problem, kDevice, kSms).size() == 1);
    REQUIRE(database.latest(honest.problem, kDevice, kSms).size() == 1);
    REQUIRE(said.size() == 1);
    REQUIRE_THAT(said[0], ContainsSubstring(b) && ContainsSubstring("changed after it was stored") &&
                              ContainsSubstring("db doctor"));
  }
  SECTION("a changed row does not hide an older one of its config") {
    Measurement again = example_measurement(canonical_text(honest.problem), b, 95);
    again.created_at.clear();
    TuningDatabase(file).append(again);
    run_sql(file, "UPDATE measurement SET median_us = 1 WHERE median_us = 95");
    run_sql(file, "UPDATE measurement SET reason = 'x' WHERE config = '" + a + "'");
    REQUIRE(best(TuningDatabase(file)) == b);
    REQUIRE(TuningDatabase(file).best(honest.problem, kDevice, kSms)->median_us == 100);
  }
  SECTION("a neighbour's winner") {
    run_sql(file, "UPDATE measurement SET median_us = 0.21 WHERE config = '" + b + "'");
    const TuningDatabase database(file);
    const auto winners =
        database.winners_of_neighbours(parse_problem("forward bf16 b2 hq8 sq2048 d64 causal"), kDevice, kSms, 3);
    REQUIRE(winners.size() == 1);
    REQUIRE(canonical_text(winners[0]) == a);
  }
  SECTION("values that nothing can have, with a content hash that holds") {
    Measurement wrong = example_measurement(canonical_text(honest.problem), b, 80);
    const auto [what, expected] = GENERATE(table<std::string, std::string>(
        {{"fast", "at least"},
         {"quantiles", "quantiles"},
         {"infinite", "negative"},
         {"place", "place"},
         {"untimed", "no time"},
         {"fast with wide scores", "at least"},
         {"infinite with wide scores", "negative"},
         {"one negative sample", "negative"},
         {"fewer samples with wide scores", "2 samples with wide scores and 3 others"},
         {"none of the samples behind a median", "0 samples with wide scores and 3 others"},
         {"no median of wide scores", "no median of them"}}));
    INFO(what);
    if (what == "fast") wrong = example_measurement(canonical_text(honest.problem), b, 0.2);  // 10,000 TFLOP/s
    if (what == "quantiles") wrong.p20_us = wrong.p80_us;
    if (what == "infinite") wrong.p80_us = std::numeric_limits<double>::infinity();
    if (what == "place") wrong.place = 1;
    if (what == "untimed") wrong.median_us = wrong.p20_us = wrong.p80_us = 0;
    const auto with_wide = [&](std::vector<double> samples, double median_us) {
      wrong.wide_samples_us = std::move(samples);
      wrong.wide_median_us = median_us;
    };
    if (what == "fast with wide scores") with_wide({0.2, 0.2, 0.2}, 0.2);
    if (what == "infinite with wide scores") with_wide({80, 80, 80}, std::numeric_limits<double>::infinity());
    if (what == "one negative sample") with_wide({80, -80, 80}, 80);
    if (what == "fewer samples with wide scores") with_wide({80, 80}, 80);
    if (what == "none of the samples behind a median") with_wide({}, 80);
    if (what == "no median of wide scores") with_wide({80, 80, 80}, 0);
    wrong.created_at.clear();
    TuningDatabase database(file);
    database.append(wrong);
    REQUIRE(best(database) == a);
    REQUIRE(database.find_all(honest.problem, kDevice, kSms).size() == 2);
    REQUIRE(said.size() == 1);
    REQUIRE_THAT(said[0], ContainsSubstring(expected));
    const DatabaseDiagnosis diagnosis = examine_database(file);
    REQUIRE(std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                        [](const DatabaseFinding& finding) { return finding.check == "values"; }));
  }
}

TEST_CASE("the default path follows the environment", "[nogpu]") {
  ScopedVariable database("ATTUNE_DATABASE", "/elsewhere/t.db"), data("XDG_DATA_HOME", "/data");
  ScopedVariable home("HOME", "/home/someone");
  REQUIRE(TuningDatabase::default_path() == "/elsewhere/t.db");
  database.unset();
  REQUIRE(TuningDatabase::default_path() == "/data/attune/tuning.db");
  data.set("");
  REQUIRE(TuningDatabase::default_path() == "/home/someone/.local/share/attune/tuning.db");
  home.unset();
  REQUIRE(TuningDatabase::default_path().empty());
}

TEST_CASE("threads share one database object", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        try {
          Measurement row = example_measurement();
          row.samples_us = {1.0 + t, 2.0 + i};
          database.append(row);
          if (!database.best(row.problem, kDevice, kSms)) ++failures;
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(database.list().at(0).rows == 80);
}

}  // namespace tuning_database_test
