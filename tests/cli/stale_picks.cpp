// What `explain` and `db best` say of stale rows, of rows beyond the error bounds, and of problems whose mask hides
// nothing.
#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/cli/explained_rows.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;

TEST_CASE("explain: a stale row gives way, and both say so", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  attune::TuningDatabase database(path);
  Measurement stale = row_of("sm80 q128 kv64 w4 st2", 80), old = row_of("sm80 q64 kv32 w4 st2", 90);
  stale.source_hash = "00000000deadbeef";
  old.attune_version = "0.0.9";
  database.append(stale);
  const nlohmann::json alone = explain(path, kProblem);
  CHECK(alone.at("origin") == "exact");
  CHECK(alone.at("config") == "sm80 q128 kv64 w4 st2");
  CHECK_THAT(alone.at("origin_detail").get<std::string>(), ContainsSubstring("stale: its kernel was another one"));
  CHECK_THAT(alone.at("tune_command").get<std::string>(), ContainsSubstring("attune tune --problem"));
  CHECK_THAT(alone.at("candidates").at(0).at("stale").get<std::string>(), ContainsSubstring("00000000deadbeef"));

  database.append(old);
  database.append(row_of("sm80 q64 kv64 w4 st2", 100));
  const nlohmann::json document = explain(path, kProblem);
  CHECK(document.at("config") == "sm80 q64 kv64 w4 st2");
  CHECK_FALSE(document.contains("tune_command"));
  const nlohmann::json& candidates = document.at("candidates");
  CHECK_FALSE(candidates.at(0).contains("stale"));
  CHECK_THAT(candidates.at(1).at("why_not").get<std::string>(), ContainsSubstring("stale: it is of Attune 0.0.9"));
  CHECK_THAT(candidates.at(2).at("why_not").get<std::string>(), ContainsSubstring("stale: its kernel was another one"));
  const CommandResult text =
      run_attune({"explain", "--problem", kProblem, "--target", "h200", "--database", path}, kNoGpu);
  CHECK_THAT(text.out, ContainsSubstring(", stale;") && ContainsSubstring("      stale: its kernel"));

  // The database's own best row is the fastest of all; it says that it is stale, too.
  const CommandResult best = run_attune({"db", "best", "--database", path, "--json"}, kNoGpu);
  CHECK_THAT(best.json().at("best").at(0).at("stale").get<std::string>(), ContainsSubstring("its kernel was another"));
  CHECK_THAT(run_attune({"db", "best", "--database", path}, kNoGpu).out, ContainsSubstring("stale"));
}

TEST_CASE("explain: a config is shown by the row that it is picked by", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  attune::TuningDatabase database(path);
  Measurement stale = row_of("sm80 q64 kv64 w4 st2", 80);
  stale.source_hash = "00000000deadbeef";
  stale.rigor = attune::Rigor::patient;
  database.append(row_of("sm80 q64 kv64 w4 st2", 100));
  database.append(stale);
  const auto picked = [&] {
    const nlohmann::json document = explain(path, kProblem);
    CHECK_THAT(document.at("origin_detail").get<std::string>(), ContainsSubstring("100.0 us"));
    return document.at("candidates").at(0);
  };
  CHECK(picked().at("median_us") > 90);
  CHECK_FALSE(picked().contains("stale"));
  Measurement wrong = row_of("sm80 q64 kv64 w4 st2", 70);
  wrong.error_o = 0.5;
  database.append(wrong);
  CHECK(picked().at("median_us") > 90);
}

TEST_CASE("explain: a row beyond the error bounds is never the pick", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  attune::TuningDatabase database(path);
  Measurement wrong = row_of("sm80 q128 kv64 w4 st2", 80);
  wrong.error_o = 0.5;
  database.append(wrong);
  database.append(row_of("sm80 q64 kv64 w4 st2", 100));
  const nlohmann::json document = explain(path, kProblem);
  CHECK(document.at("config") == "sm80 q64 kv64 w4 st2");
  CHECK_THAT(document.at("candidates").at(1).at("why_not").get<std::string>(),
             ContainsSubstring("never picked: its error of 0.5 is beyond the bound of 0.003"));
}

TEST_CASE("a tuned decoding row is found by each way to name the problem", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const std::string none = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128";
  Measurement row = attune::test::example_measurement(none, "sm80 q16 kv64 w1 st2");
  attune::TuningDatabase(path).append(attune::test::measured_here(row));
  for (const std::string& asked :
       {none, none + " causal", none + " window=4095,0", none + " causal window=5000,open"}) {
    const nlohmann::json document = explain(path, asked);
    CHECK(document.at("problem") == none);
    CHECK(document.at("origin") == "exact");
  }
  const std::string flags = " --target h200 --batch 4 --heads 8 --kv-heads 2 --seq 1 --kv-seq 4096 --head-dim 128 ";
  for (const std::string mask : {"", "--causal", "--mask causal", "--mask causal@4095", "--mask window=9999,0"}) {
    INFO(mask);
    const CommandResult result = run_attune(words("explain --json" + flags + mask), with_database(path));
    CHECK(result.json().at("origin") == "exact");
  }
  CHECK(run_attune(words("explain --json" + flags + "--mask causal@4094"), with_database(path)).json().at("origin") !=
        "exact");
  // What is tuned is the problem without the mask, too.
  CHECK(run_attune(words("db best --json" + flags + "--causal"), with_database(path)).json().at("best").size() == 1);
}
