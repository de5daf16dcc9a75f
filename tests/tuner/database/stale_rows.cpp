// Rows of another time: by another kernel, another compiler or another version of Attune. They rank below those of now,
// and whoever asks is told.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attune/log.h"
#include "generator/config/cost_estimate.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/current_build.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuned_configs.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::kTestCompiler;
using attune::test::measured_now;
using attune::test::TemporaryFolder;
using attune::test::test_build;

namespace {

constexpr const char* kProblem = "forward bf16 b4 hq8 sq4096 d64 align2";
constexpr const char* kA = "sm80 q64 kv64 w4 st2";
constexpr const char* kB = "sm80 q128 kv64 w4 st2 rescale10";
constexpr const char* kC = "sm80 q128 kv128 w8 st2";

const DeviceSpec& h200() { return find_device("h200"); }

enum class Of { now, other_compiler, other_version, other_kernel };

Measurement row_of(const char* config, double us, Of of = Of::now, Rigor rigor = Rigor::measure,
                   const char* problem = kProblem) {
  constexpr double kScale = 10;  // so that a device could take it
  Measurement row = measured_now(example_measurement(problem, config, kScale * us));
  row.rigor = rigor;
  row.predicted_us = us;
  if (of == Of::other_compiler) row.compiler = "NVRTC 12.4";
  if (of == Of::other_version) row.attune_version = "0.0.9";
  if (of == Of::other_kernel) row.source_hash = "00000000deadbeef";
  return row;
}

struct Picks {
  TemporaryFolder folder;
  std::shared_ptr<TuningDatabase> user = std::make_shared<TuningDatabase>(folder / "tuning.db");

  ConfigChoice of(const std::vector<Measurement>& rows, const std::vector<Measurement>& shipped = {},
                  const char* problem = kProblem) {
    for (const Measurement& row : rows) user->append(row);
    write_system_database(folder / "system.db", shipped);
    TunedConfigs tuned(user, {TuningDatabase::open_shipped(folder / "system.db")}, test_build());
    const auto choice = tuned.find(parse_problem(problem), h200());
    REQUIRE(choice);
    return *choice;
  }
};

std::string text(const ConfigChoice& choice) { return canonical_text(choice.config); }

}  // namespace

TEST_CASE("what is stale is told by kernel, compiler and version", "[nogpu]") {
  const auto build = test_build();
  const Measurement now = row_of(kA, 100);
  CHECK(build->staleness(now, h200()) == Staleness::current);
  CHECK(build->why_stale(now, h200()).empty());

  CHECK(build->staleness(row_of(kA, 100, Of::other_compiler), h200()) == Staleness::other_build);
  CHECK(build->why_stale(row_of(kA, 100, Of::other_compiler), h200()) ==
        "it was compiled by NVRTC 12.4, not by NVRTC 13.0 (test)");
  CHECK(build->staleness(row_of(kA, 100, Of::other_version), h200()) == Staleness::other_build);
  CHECK_THAT(build->why_stale(row_of(kA, 100, Of::other_version), h200()), ContainsSubstring("Attune 0.0.9, not of "));
  const Measurement other_kernel = row_of(kA, 100, Of::other_kernel);
  CHECK(build->staleness(other_kernel, h200()) == Staleness::other_kernel);
  CHECK(build->staleness_of_build(other_kernel) == Staleness::current);
  CHECK_THAT(build->why_stale(other_kernel, h200()),
             ContainsSubstring("source 00000000deadbeef, now " + now.source_hash));

  // Scale, lengths and layout are arguments of the kernel.
  Measurement longer = now;
  longer.problem = parse_problem("forward bf16 b1 hq1 sq777 d64 align2 scale0.3 bhsd");
  CHECK(build->staleness(longer, h200()) == Staleness::current);
  longer.problem = parse_problem("forward fp16 b1 hq1 sq777 d64 align2");
  CHECK(build->staleness(longer, h200()) == Staleness::other_kernel);

  // A config that has no kernel any more.
  Measurement none = now;
  none.config = parse_config("sm80 q128 kv64 w3 st2");
  CHECK(build->staleness(none, h200()) == Staleness::other_kernel);
  CHECK(build->why_stale(none, h200()) == "its config has no kernel any more");

  // Where nothing can be compiled no row is told by its compiler.
  const CurrentBuild without(std::string(attune_version()), "", TemplateSet::embedded());
  CHECK(without.staleness(row_of(kA, 100, Of::other_compiler), h200()) == Staleness::current);
  CHECK(without.why_stale(row_of(kA, 100, Of::other_compiler), h200()).empty());

  // The cost model compiles nothing.
  Measurement estimate = row_of(kA, 100, Of::other_kernel, Rigor::estimate);
  estimate.compiler = "g++ 12";
  CHECK(build->staleness(estimate, h200()) == Staleness::current);
  estimate.attune_version = "0.0.9";
  CHECK(build->staleness(estimate, h200()) == Staleness::other_build);

  // Rows that know their templates alone.
  Measurement old = now;
  old.source_hash = std::string(kTemplatesMark) + "0123456789abcdef";
  CHECK(build->staleness(old, h200()) == Staleness::other_kernel);

  // A GPU that is not in the table is known while it is asked for.
  DeviceSpec unknown = h200();
  unknown.name = "NVIDIA B999";
  Measurement elsewhere = now;
  elsewhere.device = unknown.name;
  CHECK(build->staleness(elsewhere, unknown) == Staleness::current);
  elsewhere.source_hash = "00000000deadbeef";
  CHECK(build->staleness(elsewhere, unknown) == Staleness::other_kernel);
}

TEST_CASE("another text of a kernel makes no row stale, another kernel does", "[nogpu]") {
  const Measurement row = row_of(kA, 100);
  auto texts = TemplateSet::embedded().texts();
  texts["kernels/forward_sm80"] += "// another comment\n\n\n";
  const TemplateSet reflowed(texts);
  CHECK(CurrentBuild(row.attune_version, row.compiler, reflowed).staleness(row, h200()) == Staleness::current);
  texts["kernels/forward_sm80"] += "static_assert(true);\n";
  const TemplateSet changed(texts);
  CHECK(CurrentBuild(row.attune_version, row.compiler, changed).staleness(row, h200()) == Staleness::other_kernel);
}

TEST_CASE("picks: a row of now before any stale one of the problem, then by how stale it is", "[nogpu]") {
  Picks picks;
  SECTION("whatever its time, its rigor or its race") {
    for (const Of of : {Of::other_compiler, Of::other_version, Of::other_kernel}) {
      Picks fresh;
      Measurement stale = row_of(kB, 50, of, Rigor::patient);
      stale.race = "2026-01-01T00:00:00Z";
      stale.place = 1;
      const ConfigChoice choice = fresh.of({stale, row_of(kA, 100)});
      CHECK(text(choice) == kA);
      CHECK(choice.origin == ConfigOrigin::exact);
      CHECK_THAT(choice.detail, !ContainsSubstring("stale"));
      CHECK(choice.tune_command.empty());
    }
  }
  SECTION("another build before another kernel") {
    const ConfigChoice choice = picks.of({row_of(kB, 50, Of::other_kernel), row_of(kA, 100, Of::other_compiler)});
    CHECK(text(choice) == kA);
    CHECK_THAT(choice.detail, ContainsSubstring("stale: it was compiled by NVRTC 12.4"));
    CHECK(choice.tune_command == "attune tune --problem \"" + std::string(kProblem) + "\"");
  }
  SECTION("all are stale: as before, and it is said") {
    const ConfigChoice choice = picks.of({row_of(kB, 50, Of::other_kernel), row_of(kA, 100, Of::other_kernel)});
    CHECK(text(choice) == kB);
    CHECK(choice.origin == ConfigOrigin::exact);
    CHECK_THAT(choice.detail,
               ContainsSubstring("user database; stale: its kernel was another one (source 00000000deadbeef"));
  }
  SECTION("an older row of the same config stands where the newer one is stale") {
    Measurement patient = row_of(kA, 90, Of::other_kernel, Rigor::patient);
    const ConfigChoice choice = picks.of({row_of(kA, 100), patient});
    CHECK(text(choice) == kA);
    CHECK_THAT(choice.detail, ContainsSubstring("1000.0 us") && !ContainsSubstring("stale"));
  }
  SECTION("a failure of another kernel keeps no row of now from standing, one of now does") {
    Measurement failed = row_of(kB, 50, Of::other_kernel, Rigor::patient);
    failed.status = MeasurementStatus::wrong_result;
    CHECK(text(picks.of({row_of(kB, 50), row_of(kA, 100), failed})) == kB);
    Picks proven;
    failed.source_hash = row_of(kB, 50).source_hash;
    CHECK(text(proven.of({row_of(kB, 50), row_of(kA, 100), failed})) == kA);
    // Where all are stale it is as it was: what is known to be wrong is not taken.
    Picks old;
    failed.source_hash = "00000000deadbeef";
    CHECK(text(old.of({row_of(kB, 50, Of::other_kernel), row_of(kA, 100, Of::other_kernel), failed})) == kA);
  }
  SECTION("the system's row of now before a user's stale one; of equals the user's") {
    CHECK(text(picks.of({row_of(kA, 100, Of::other_kernel)}, {row_of(kB, 120)})) == kB);
    Picks equals;
    CHECK(text(equals.of({row_of(kA, 100, Of::other_kernel)}, {row_of(kB, 50, Of::other_kernel)})) == kA);
    Picks current;
    CHECK(text(current.of({row_of(kA, 100)}, {row_of(kB, 50)})) == kA);
  }
  SECTION("a stale measured row before an estimate of now, and before a neighbour of now") {
    CHECK(text(picks.of({row_of(kA, 100, Of::other_kernel), row_of(kB, 50, Of::now, Rigor::estimate),
                         row_of(kC, 50, Of::now, Rigor::measure, "forward bf16 b4 hq8 sq4000 d64 align2")})) == kA);
  }
  SECTION("hundreds of stale rows are looked at no longer than a call can wait") {
    std::vector<Measurement> rows;
    for (int q : {16, 32, 64, 128}) {
      for (int kv : {16, 32, 48, 64, 80, 96, 112, 128}) {
        for (int stages : {1, 2, 3}) {
          const std::string config = fmt::format("sm80 q{} kv{} w{} st{}", q, kv, q / 16 > 8 ? 8 : q / 16, stages);
          if (!infeasibility(parse_problem(kProblem), parse_config(config), h200()).empty()) continue;
          rows.push_back(row_of(config.c_str(), 1000 + static_cast<double>(rows.size()), Of::other_kernel));
        }
      }
    }
    REQUIRE(rows.size() > 64);
    picks.user->append(rows);
    const ConfigChoice choice = picks.of({});
    CHECK_THAT(choice.detail, ContainsSubstring("10000.0 us") && ContainsSubstring("stale"));
  }
}

TEST_CASE("picks: of neighbours a stale one gives way to one of now that is nearly as fast", "[nogpu]") {
  const char* const asked = "forward bf16 b4 hq8 sq8192 d64 align2";
  const auto expected = [&](const char* config) {
    return estimate_cost(parse_problem(asked), parse_config(config), h200()).microseconds;
  };
  const char* const fast = "sm80 q128 kv64 w4 st2 rescale10 even-tiles";
  const char* const near = "sm80 q128 kv48 w4 st2 qsmem order=tile-major";
  REQUIRE(expected(near) > expected(fast));
  REQUIRE(expected(near) < 1.1 * expected(fast));
  REQUIRE(expected(kC) > 1.11 * expected(fast));
  const auto choice = [&](Of of_fast, const char* other) {
    Picks picks;
    return picks.of({row_of(fast, 900, of_fast, Rigor::measure, "forward bf16 b4 hq8 sq8064 d64 align2"),
                     row_of(other, 900, Of::now, Rigor::measure, "forward bf16 b4 hq8 sq7936 d64 align2")},
                    {}, asked);
  };
  CHECK(text(choice(Of::now, near)) == fast);
  CHECK(text(choice(Of::other_compiler, near)) == fast);
  const ConfigChoice other = choice(Of::other_kernel, near);
  CHECK(text(other) == near);
  CHECK_THAT(other.detail, !ContainsSubstring("stale"));
  const ConfigChoice stale = choice(Of::other_kernel, kC);
  CHECK(text(stale) == fast);
  CHECK_THAT(stale.detail, ContainsSubstring("stale: its kernel was another one"));

  // The same config of now, from farther away, before another one that is nearly as fast.
  Picks picks;
  const ConfigChoice same =
      picks.of({row_of(fast, 900, Of::other_kernel, Rigor::measure, "forward bf16 b4 hq8 sq8064 d64 align2"),
                row_of(near, 900, Of::now, Rigor::measure, "forward bf16 b4 hq8 sq7936 d64 align2"),
                row_of(fast, 900, Of::now, Rigor::measure, "forward bf16 b4 hq8 sq6912 d64 align2")},
               {}, asked);
  CHECK(text(same) == fast);
  CHECK_THAT(same.detail, ContainsSubstring("sq6912") && !ContainsSubstring("stale"));
}

TEST_CASE("a stale pick is told to the log once", "[nogpu]") {
  std::mutex mutex;
  std::vector<std::string> said;
  set_log_sink([&](LogLevel level, std::string_view message) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::info) said.emplace_back(message);
  });
  const TemporaryFolder folder;
  const auto database = std::make_shared<TuningDatabase>(folder / "tuning.db");
  database->append(row_of(kA, 100, Of::other_kernel));
  database->append(row_of(kB, 100, Of::now, Rigor::measure, "forward bf16 b4 hq8 sq512 d64 align2"));
  TunedConfigs tuned(database, {}, test_build());
  for (int i = 0; i < 3; ++i) {
    CHECK(tuned.find(parse_problem(kProblem), h200()));
    CHECK(tuned.find(parse_problem("forward bf16 b4 hq8 sq512 d64 align2"), h200()));
  }
  set_log_sink({});
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], ContainsSubstring(kProblem) &&
                          ContainsSubstring("comes from a stale row: its kernel was another one") &&
                          ContainsSubstring("attune tune --problem"));
}

TEST_CASE("a row whose recorded error is beyond its bound is never picked", "[nogpu]") {
  const auto beyond = [](auto change) {
    Measurement row = row_of(kA, 100);
    change(row);
    return error_beyond_bounds(row);
  };
  CHECK(beyond([](Measurement&) {}).empty());
  CHECK(beyond([](Measurement& row) { row.error_o = 3e-3; }).empty());
  CHECK(beyond([](Measurement& row) { row.error_o = 0.5; }) == "its error of 0.5 is beyond the bound of 0.003");
  CHECK_THAT(beyond([](Measurement& row) { row.error_o = std::nan(""); }), ContainsSubstring("nan"));
  CHECK_THAT(beyond([](Measurement& row) { row.error_lse = 1e-3; }), ContainsSubstring("LSE"));
  CHECK_THAT(beyond([](Measurement& row) { row.error_lse = std::nan(""); }), ContainsSubstring("LSE"));
  CHECK(beyond([](Measurement& row) {
          row.error_o = 0.5;
          row.status = MeasurementStatus::wrong_result;
        }).empty());
  CHECK_FALSE(beyond([](Measurement& row) { row.problem.dtype = DataType::fp16; }).empty());
  // Few rows average less; gradients have a bound of their own, few pairs none.
  CHECK(beyond([](Measurement& row) {
          row.problem = parse_problem("b1 hq1 sq1 skv4096 d64");
          row.error_o = 4e-3;
        }).empty());
  CHECK(beyond([](Measurement& row) {
          row.problem = parse_problem("backward b1 hq1 sq512 d64");
          row.error_o = 3.9e-3;
        }).empty());
  CHECK_FALSE(beyond([](Measurement& row) {
                row.problem = parse_problem("backward b1 hq1 sq512 d64");
                row.error_o = 4.1e-3;
              }).empty());
  CHECK(beyond([](Measurement& row) {
          row.problem = parse_problem("backward b1 hq1 sq8 d64");
          row.error_o = 0.5;
        }).empty());

  Picks picks;
  Measurement wrong = row_of(kB, 50);
  wrong.error_o = 0.5;
  Measurement older = row_of(kB, 120);
  older.created_at = "2024-01-01T00:00:00Z";
  // An older row of its config stands in its place.
  const ConfigChoice choice = picks.of({older, row_of(kA, 150), wrong});
  CHECK(text(choice) == kB);
  CHECK_THAT(choice.detail, ContainsSubstring("1200.0 us"));
  CHECK(picks.user->best(parse_problem(kProblem), "NVIDIA H200", 132)->median_us == 1200);
  const auto ranked = picks.user->ranked([](const std::string&, int) { return true; });
  REQUIRE(ranked.size() == 2);
  CHECK(picks.user->find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 3);  // it is there to be seen
  CHECK(rows_to_ship({wrong}).empty());
  Picks alone;
  alone.user->append(wrong);
  CHECK_FALSE(TunedConfigs(alone.user, {}, test_build()).find(parse_problem(kProblem), h200()));
}
