#include "tuner/sweep/search_start.h"

#include <memory>
#include <string>

#include "tests/catch.h"
#include "tests/tuner/sweep/fake_worker.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::fake_worker;
using attune::test::kProblem;
using attune::test::options_for;
using attune::test::TemporaryFolder;

TEST_CASE("a search starts from what is known: this problem's best, the neighbours' winners", "[nogpu]") {
  const TemporaryFolder folder;
  const AttentionProblem problem = parse_problem(kProblem), neighbour = parse_problem("forward bf16 b1 hq8 sq2048 d64");
  TuningDatabase database(folder / "tuning.db");
  const auto row = [&](const AttentionProblem& of, const char* config, const char* templates) {
    Measurement m;
    m.problem = of;
    m.config = parse_config(config);
    m.device = "NVIDIA H200";
    m.sm_count = 132;
    m.samples_us = {70, 70};
    m.source_hash = templates;
    m.compiler = "C0";
    m.summarize();
    return m;
  };
  // A row of old templates: its time is stale, the choice is still worth trying.
  database.append(row(problem, "sm80 q64 kv48 w2 st2 rescale10", "T0"));
  database.append(row(neighbour, "sm80 q64 kv112 w4 st2 rescale8", "T0"));  // which the space no longer offers
  const std::string command = fake_worker(folder, {"measured 80"});
  SweepOptions options = options_for(command, 3);
  options.extent = SpaceExtent::whole;
  const SweepResult result = sweep(problem, options, database);
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.rows[0].config == default_config(problem, find_device("h200")));
  REQUIRE(canonical_text(result.rows[1].config) == "sm80 q64 kv48 w2 st2 rescale10");
  REQUIRE(canonical_text(result.rows[2].config) == "sm80 q64 kv112 w4 st2 rescale10");

  SECTION("and from what the presets know") {
    const auto presets = std::make_shared<TuningDatabase>(folder / "presets.db");
    presets->append(row(problem, "sm80 q128 kv112 w8 st1 rescale10", "T0"));
    options.max_candidates = 4;
    options.presets = {presets};
    const SweepResult seeded = sweep(problem, options, database);
    REQUIRE(canonical_text(seeded.rows[1].config) == "sm80 q128 kv112 w8 st1 rescale10");
  }
}
