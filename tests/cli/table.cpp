// Results as tables: --format of the verbs that have one.
#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::TuningDatabase;

namespace {

const std::string kWindow = "forward bf16 b2 hq8 sq1024 d64 window=30,0",
                  kCausal = "forward bf16 b2 hq8 sq2048 d64 causal";
const std::string kConfig = "sm80 q128 kv64 w4 st2";

std::string database_in(const attune::test::TemporaryFolder& folder) {
  const std::string path = (folder / "tuning.db").string();
  TuningDatabase database(path);
  for (const auto& [problem, time] : {std::pair(kWindow, 123.25), std::pair(kCausal, 1234.5678)}) {
    Measurement row = attune::test::example_measurement(problem, kConfig);
    row.samples_us.assign(10, time);
    row.summarize();
    database.append(row);
  }
  return path;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("db best as a table", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::vector<std::string> best = {"db", "best", "--database", database_in(folder), "--format"};
  const auto as = [&](const std::string& format) {
    std::vector<std::string> arguments = best;
    arguments.push_back(format);
    return run_attune(arguments, kNoGpu);
  };
  const CommandResult csv = as("csv");
  REQUIRE(csv.status == 0);
  const std::vector<std::string> lines = lines_of(csv.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "problem,device,sm_count,config,median_us,wide_median_us,tflops,rigor,created_at");
  // A window has a comma; a row without wide scores an empty cell; a number all its digits.
  CHECK_THAT(csv.out, ContainsSubstring("\n\"" + kWindow + "\",NVIDIA H200,132," + kConfig + ",123.25,,"));
  CHECK_THAT(csv.out, ContainsSubstring("\n" + kCausal + ",NVIDIA H200,132," + kConfig + ",1234.5678,,"));

  const CommandResult markdown = as("markdown");
  REQUIRE(markdown.status == 0);
  const std::vector<std::string> rows = lines_of(markdown.out);
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] ==
        "| problem | device | sm_count | config | median_us | wide_median_us | tflops | rigor | created_at |");
  CHECK(rows[1] == "|---|---|---:|---|---:|---|---:|---|---|");
  CHECK_THAT(markdown.out, ContainsSubstring("| " + kWindow + " | NVIDIA H200 | 132 | " + kConfig + " | 123.25 |  | "));
  CHECK_THAT(markdown.out, ContainsSubstring(" | 1234.57 | "));

  CHECK(as("json").json() == run_attune({"db", "best", "--database", best[3], "--json"}, kNoGpu).json());
  CHECK(as("text").out == run_attune({"db", "best", "--database", best[3]}, kNoGpu).out);
  const CommandResult unknown = as("html");
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("--format") && ContainsSubstring("markdown"));
}

TEST_CASE("--json and another --format contradict each other", "[nogpu]") {
  const CommandResult both =
      run_attune(words("explain --seq 64 --head-dim 64 --target h200 --json --format csv"), kNoGpu);
  CHECK(both.status == 2);
  CHECK_THAT(both.json().at("message").get<std::string>(), ContainsSubstring("--json and --format csv contradict"));
  for (const char* line :
       {"explain --seq 0 --head-dim 64 --format json", "explain --seq 0 --head-dim 64 --format=json"})
    CHECK(run_attune(words(line), kNoGpu).json().at("status") == "error");
}

TEST_CASE("explain and compare as tables", "[nogpu]") {
  const CommandResult explained =
      run_attune(words("explain --seq 1024 --head-dim 64 --target h200 --limit 3 --format csv"), kNoGpu);
  INFO(explained.err);
  REQUIRE(explained.status == 0);
  const std::vector<std::string> lines = lines_of(explained.out);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] ==
        "config,picked,status,median_us,wide_median_us,tflops,predicted_us,registers,ctas_per_sm,waves,why_not");
  CHECK_THAT(lines[1], ContainsSubstring(",true,"));
  CHECK_THAT(lines[2], ContainsSubstring(",false,"));
  CHECK_THAT(explained.err, ContainsSubstring("more candidates are not shown"));

  const attune::test::TemporaryFolder folder;
  const std::string path = database_in(folder);
  const CommandResult compared = run_attune({"compare", path, path, "--format", "markdown"}, kNoGpu);
  INFO(compared.err);
  REQUIRE(compared.status == 0);
  CHECK_THAT(compared.out, ContainsSubstring("| problem | device | config_a | config_b | median_us_a | median_us_b |"));
  CHECK(lines_of(compared.out).size() == 4);
  // A table without rows is still one.
  const CommandResult none =
      run_attune({"compare", path, path, "--format", "csv", "--problem", "forward sq5 d8", "--target", "h200"}, kNoGpu);
  CHECK(none.status == 1);
  CHECK(none.out == "problem,device,config_a,config_b,median_us_a,median_us_b,time_ratio,low,high,verdict\n");
}

TEST_CASE("bench of algorithms as a table", "[emulator]") {
  const CommandResult result =
      run_attune(words("bench --algorithm standard,fa2 --seq 64 --head-dim 32 --device emulator --format csv"), kNoGpu);
  INFO(result.err);
  REQUIRE(result.status == 0);
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] ==
        "algorithm,config,status,reason,median_us,tflops,counted_gbps,read_bytes,written_bytes,workspace_bytes");
  CHECK_THAT(lines[1], Catch::Matchers::StartsWith("standard,") && ContainsSubstring(",ok,,,,,"));
  CHECK_THAT(lines[2], Catch::Matchers::StartsWith("fa2,"));
}
