#include "tuner/database/database_pruning.h"

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::example_measurement;
using attune::test::measured_now;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::test_build;
using attune::testing::error_of;
namespace fs = std::filesystem;

namespace {

const std::string kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";
const std::string kA = "sm80 q64 kv64 w4 st2", kB = "sm80 q128 kv64 w4 st2", kC = "sm80 q128 kv128 w8 st2";

Measurement row(const std::string& config, double us, int day, MeasurementStatus status = MeasurementStatus::ok,
                Rigor rigor = Rigor::measure) {
  Measurement m = measured_now(example_measurement(kProblem, config, us));
  m.status = status;
  m.rigor = rigor;
  m.created_at = "2025-03-0" + std::to_string(day) + "T00:00:00.000000Z";
  return m;
}

std::string best_of(const fs::path& file) {
  const auto found = TuningDatabase(file).best(parse_problem(kProblem), "NVIDIA H200", 132);
  return found ? canonical_text(found->config) + " " + std::to_string(found->median_us) : "nothing";
}

}  // namespace

TEST_CASE("pruning removes by rule and never changes the best", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const auto best = [&] { return best_of(file); };
  const auto add = [&](const std::vector<Measurement>& rows) { TuningDatabase(file).append_all(rows); };
  const auto count = [&] { return ask_sql(file, "SELECT count(*) FROM measurement"); };

  SECTION("the latest of each config, and the one that stands for it") {
    add({row(kA, 50, 1, MeasurementStatus::ok, Rigor::patient), row(kA, 91, 2), row(kA, 92, 3), row(kA, 93, 4),
         row(kB, 80, 1), row(kB, 81, 2)});
    const std::string chosen = best();
    const PruneResult dry = prune_database(file, {1, std::nullopt}, true);
    REQUIRE(count() == 6);
    const PruneResult result = prune_database(file, {1, std::nullopt}, false);
    REQUIRE(dry.removed.size() == result.removed.size());
    REQUIRE(dry.kept == result.kept);
    REQUIRE(result.kept == 3);  // A's patient row and its newest, B's newest
    REQUIRE(count() == 3);
    REQUIRE(result.removed.size() == 3);
    REQUIRE(result.removed[0].config == kB);
    REQUIRE(result.removed[0].created_at.starts_with("2025-03-01"));
    REQUIRE(result.removed[1].config == kA);
    REQUIRE(best() == chosen);
    REQUIRE(prune_database(file, {1, std::nullopt}, false).removed.empty());
  }
  SECTION("old failures, but none that keeps a config from being chosen") {
    Measurement recent = row(kB, 70, 1, MeasurementStatus::timed_out);
    recent.created_at = utc_now();
    add({row(kA, 40, 1), row(kA, 40, 2, MeasurementStatus::wrong_result),  // A is proven wrong: that must stay known
         row(kB, 80, 1, MeasurementStatus::crashed), row(kB, 81, 2), recent});
    add({example_measurement("forward fp16 b1 hq4 sq77 d128")});
    Measurement only = example_measurement("forward fp16 b1 hq4 sq99 d128");
    only.status = MeasurementStatus::compile_failed;
    add({only});
    const std::string chosen = best();
    REQUIRE(prune_database(file, {std::nullopt, 36500}, false).removed.empty());
    const PruneResult result = prune_database(file, {std::nullopt, 30}, false);
    REQUIRE(result.removed.size() == 2);
    REQUIRE(result.removed[0].status == "crashed");
    REQUIRE(result.removed[1].status == "compile_failed");
    REQUIRE(best() == chosen);
    // Nothing is left that only the removed rows referred to.
    REQUIRE(ask_sql(file, "SELECT count(*) FROM problem") == 2);
    REQUIRE(examine_database(file).findings.empty());
  }
  SECTION("rules that say nothing or nonsense") {
    add({row(kA, 50, 1)});
    REQUIRE_THAT(error_of(ErrorCode::invalid_argument, [&] { prune_database(file, {}, false); }),
                 ContainsSubstring("--keep-latest"));
    REQUIRE_THAT(error_of(ErrorCode::invalid_argument,
                          [&] {
                            prune_database(file, {0, std::nullopt}, false);
                          }),
                 ContainsSubstring("at least 1"));
    REQUIRE_THAT(error_of(ErrorCode::invalid_argument,
                          [&] {
                            prune_database(file, {std::nullopt, -1}, false);
                          }),
                 ContainsSubstring("at least 0"));
    REQUIRE_THAT(error_of(ErrorCode::database,
                          [&] {
                            prune_database(folder / "none.db", {1, 1}, false);
                          }),
                 ContainsSubstring("none.db"));
    run_sql(file, "PRAGMA user_version = 99");
    REQUIRE_THAT(error_of(ErrorCode::database,
                          [&] {
                            prune_database(file, {1, 1}, false);
                          }),
                 ContainsSubstring("newer"));
    REQUIRE(count() == 1);
  }
}

TEST_CASE("pruning leaves the row that a pick rests on, where the one that stands is stale or never picked",
          "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const auto build = test_build();
  Measurement other_kernel = row(kA, 60, 4, MeasurementStatus::ok, Rigor::patient), other_version = row(kA, 85, 3),
              beyond = row(kB, 40, 2), failed = row(kC, 40, 2, MeasurementStatus::crashed);
  other_kernel.source_hash = "00000000deadbeef";
  other_version.attune_version = "0.0.9";
  beyond.error_o = 0.5;
  failed.source_hash = "00000000deadbeef";
  TuningDatabase(file).append_all(
      {other_kernel, other_version, row(kA, 90, 2), row(kA, 95, 1), beyond, row(kB, 80, 1), failed, row(kC, 30, 1)});
  const auto best = [&] { return best_of(file); };
  const auto pick = [&] {
    return TunedConfigs(TuningDatabase::open_for_reading(file), {}, build)
        .find(parse_problem(kProblem), find_device("h200"))
        ->detail;
  };
  const std::string chosen = best(), picked = pick();
  REQUIRE_THAT(picked, ContainsSubstring(" 30.0 us"));
  const PruneResult result = prune_database(file, {1, std::nullopt}, false, *build);
  REQUIRE(result.removed.size() == 1);
  REQUIRE(result.removed[0].created_at.starts_with("2025-03-01"));
  REQUIRE(result.removed[0].config == kA);
  REQUIRE(best() == chosen);
  REQUIRE(pick() == picked);
  run_sql(file, "DELETE FROM measurement WHERE config = '" + kC + "'");
  REQUIRE_THAT(pick(), ContainsSubstring(" 80.0 us"));
  run_sql(file, "DELETE FROM measurement WHERE config = '" + kB + "'");
  REQUIRE_THAT(pick(), ContainsSubstring(" 90.0 us"));
}
