// What a cache is to be filled with, and what becomes of compilers that hang, crash or cannot start.
#include "tuner/trial/precompile.h"

#include <set>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"

using namespace attune;

namespace {

const std::string kShape = "forward bf16 b1 hq4 sq512 d64";

std::vector<PrecompileJob> jobs_of(const std::vector<std::string>& configs) {
  std::vector<PrecompileJob> jobs;
  for (const std::string& config : configs) jobs.push_back({parse_problem(kShape), parse_config(config)});
  return jobs;
}

/// A worker whose answer depends on the config in the request, which is $line.
std::string worker_that(const test::TemporaryFolder& folder, const std::string& cases) {
  return test::write_script(folder / "worker", "while read -r line; do case \"$line\" in\n" + cases + "esac; done\n");
}

}  // namespace

TEST_CASE("jobs: the default first, in the model's order, each source once", "[nogpu]") {
  const DeviceSpec& device = find_device("a100");
  const AttentionProblem problem = parse_problem(kShape), shorter = parse_problem("forward bf16 b1 hq4 sq256 d64"),
                         other = parse_problem("forward fp16 b1 hq4 sq512 d64");
  std::size_t considered = 0;
  const auto jobs = precompile_jobs({problem, shorter, other}, device, 5, &considered);
  CHECK(considered == 15);
  CHECK(jobs.front().config == default_config(problem, device));
  std::set<std::string> sources;
  for (const PrecompileJob& job : jobs) {
    CHECK(infeasibility(job.problem, job.config, device).empty());
    CHECK(sources.insert(kernel_class(job.problem, job.config)).second);
  }
  CHECK(jobs.size() >= 10);  // two dtypes share nothing
  CHECK(precompile_jobs({problem, problem}, device, 5).size() == 5);
  CHECK(precompile_jobs({problem}, device, 0).size() > 100);
}

TEST_CASE("a compiler that hangs, crashes, fails or talks nonsense costs its own job alone", "[nogpu]") {
  const test::TemporaryFolder folder;
  PrecompileOptions options;
  options.spec = find_device("a100");
  options.workers = 2;
  options.timeout_seconds = 0.5;
  options.command = worker_that(folder,
                                "*kv16*) sleep 60 ;;\n"
                                "*kv32*) kill -9 $$ ;;\n"
                                "*kv48*) echo '{\"status\": \"compile_failed\", \"reason\": \"line 3\"}' ;;\n"
                                "*kv64*) echo nonsense ;;\n"
                                "*kv80*) echo '{\"status\": \"ok\", \"reason\": \"\", \"from_cache\": true}' ;;\n"
                                "*kv112*) echo '{\"error\": \"said\", \"code\": 1e300}' ;;\n"
                                "*) echo '{\"status\": \"ok\", \"reason\": \"\", \"from_cache\": false}' ;;\n");
  const auto jobs =
      jobs_of({"sm80 q64 kv16 w4 st2", "sm80 q64 kv32 w4 st2", "sm80 q64 kv48 w4 st2", "sm80 q64 kv64 w4 st2",
               "sm80 q64 kv80 w4 st2", "sm80 q64 kv96 w4 st2", "sm80 q64 kv112 w4 st2"});
  std::set<std::size_t> seen;
  const auto outcomes =
      precompile(jobs, options, [&](std::size_t job, const PrecompileOutcome&) { CHECK(seen.insert(job).second); });
  CHECK(seen.size() == jobs.size());
  REQUIRE(outcomes.size() == jobs.size());
  CHECK(outcomes[0].status == MeasurementStatus::compile_timed_out);
  CHECK(outcomes[1].status == MeasurementStatus::crashed);
  CHECK(outcomes[2].status == MeasurementStatus::compile_failed);
  CHECK(outcomes[2].reason == "line 3");
  CHECK(outcomes[3].status == MeasurementStatus::crashed);
  CHECK_THAT(outcomes[3].reason, ContainsSubstring("nonsense"));
  CHECK(outcomes[4].status == MeasurementStatus::ok);
  CHECK(outcomes[4].from_cache);
  CHECK(outcomes[5].status == MeasurementStatus::ok);
  CHECK_FALSE(outcomes[5].from_cache);
  CHECK(outcomes[6].status == MeasurementStatus::crashed);  // a code that is none
  CHECK_THAT(outcomes[6].reason, ContainsSubstring("1e300"));
}

TEST_CASE("trouble of the environment ends a precompilation in the worker's own words", "[nogpu]") {
  const test::TemporaryFolder folder;
  PrecompileOptions options;
  options.spec = find_device("a100");
  options.workers = 2;
  const int code = static_cast<int>(ErrorCode::nvrtc_unavailable);
  options.command =
      worker_that(folder, "*) echo '{\"error\": \"no NVRTC here\", \"code\": " + std::to_string(code) + "}' ;;\n");
  const auto jobs = jobs_of({"sm80 q64 kv16 w4 st2", "sm80 q64 kv32 w4 st2", "sm80 q64 kv48 w4 st2"});
  try {
    precompile(jobs, options);
    FAIL("not thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::nvrtc_unavailable);
    CHECK(error.what() == std::string("no NVRTC here"));
  }
  options.command = (folder / "missing").string();
  CHECK_THROWS_WITH(precompile(jobs, options), ContainsSubstring("missing"));
}
