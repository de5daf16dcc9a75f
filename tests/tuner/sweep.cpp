#include "tuner/sweep.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "generator/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/compile_ahead.h"
#include "tuner/measurement_json.h"
#include "tuner/worker.h"

using namespace attune;
using attune::test::sibling_program;
using attune::test::TemporaryFolder;
using attune::test::write_script;
namespace fs = std::filesystem;

namespace {

const char* const kProblem = "forward bf16 b1 hq8 sq1024 d64";

// A worker in shell: what it does on a trial, which has $config and $problem, is `on_trial`. It keeps a list of all
// requests.
std::string fake_worker(const TemporaryFolder& folder, const std::string& on_trial, const std::string& on_compile = "",
                        const std::string& compiler = "C1") {
  return write_script(folder / "attune", fmt::format(R"sh(
exec 2>/dev/null
measured() {{
  echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"samples_us\":[$1],\"median_us\":$1,\"rigor\":\"measure\"}}}}"
}}
while read -r line; do
  config=$(printf '%s' "$line" | sed -n 's/.*"config":"\([^"]*\)".*/\1/p')
  problem=$(printf '%s' "$line" | sed 's/.*"problem":"\([^"]*\)".*/\1/')
  op=$(printf '%s' "$line" | sed 's/.*"op":"\([a-z]*\)".*/\1/')
  echo "$op $config" >> {0}/requests
  case $op in
    prepare) echo '{{"device_name":"NVIDIA H200","sm_count":132,"compiler":"{3}","driver":"D1","templates_hash":"T1","can_time":true}}' ;;
    compile) {2} echo '{{"status":"ok","reason":""}}' ;;
    trial) {1} ;;
  esac
done
)sh",
                                                     folder.path().string(), on_trial, on_compile, compiler));
}

std::multiset<std::string> requests(const TemporaryFolder& folder, const std::string& op) {
  std::multiset<std::string> found;
  std::ifstream file(folder / "requests");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(op + " ")) found.insert(line.substr(op.size() + 1));
  }
  return found;
}

SweepOptions options_for(const std::string& command, int max_candidates) {
  SweepOptions options;
  options.device = "cuda:0";
  options.spec = find_device("h200");
  options.command = command;
  options.max_candidates = max_candidates;
  options.compile_workers = 2;
  options.trial_timeout_seconds = 20;
  return options;
}

std::vector<std::string> expected_order(std::size_t count) {
  const AttentionProblem problem = parse_problem(kProblem);
  const DeviceSpec& h200 = find_device("h200");
  std::vector<std::string> configs{canonical_text(default_config(problem, h200))};
  for (const Candidate& candidate : config_space(problem, h200)) {
    if (candidate.feasible() && canonical_text(candidate.config) != configs[0])
      configs.push_back(canonical_text(candidate.config));
  }
  configs.resize(count);
  return configs;
}

}  // namespace

TEST_CASE("a sweep tries the default first, then the cost model's order, and stores every row", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(6);
  // The third is the fastest.
  const std::string command =
      fake_worker(folder, fmt::format("if [ \"$config\" = \"{}\" ]; then measured 50; else measured 90; fi", order[2]));
  TuningDatabase database(folder / "tuning.db");
  std::vector<SweepProgress> seen;
  const SweepResult result = sweep(parse_problem(kProblem), options_for(command, 6), database,
                                   [&](const SweepProgress& p) { seen.push_back(p); });

  REQUIRE(result.timed);
  REQUIRE(result.ended_by == "max candidates");
  REQUIRE(result.rows.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(canonical_text(result.rows[i].config) == order[i]);
  REQUIRE(result.best);
  REQUIRE(canonical_text(result.best->config) == order[2]);
  REQUIRE(result.best->median_us == 50);
  REQUIRE(canonical_text(result.default_measurement->config) == order[0]);
  REQUIRE(result.notes.empty());
  REQUIRE(seen.size() == 6);
  REQUIRE(seen[0].done == 1);
  REQUIRE(seen[5].total == 6);
  REQUIRE(seen[1].best->median_us == 90);
  REQUIRE(seen[2].best->median_us == 50);

  const auto stored = database.find_all(parse_problem(kProblem), "NVIDIA H200", 132);
  REQUIRE(stored.size() == 6);
  REQUIRE(stored[2].compiler == "C1");
  REQUIRE(stored[2].predicted_us > 0);
  REQUIRE(canonical_text(database.best(parse_problem(kProblem), "NVIDIA H200", 132)->config) == order[2]);
  // Each was compiled once, by whichever process.
  const auto compiled = requests(folder, "compile");
  REQUIRE(compiled == std::multiset<std::string>(order.begin(), order.end()));

  SECTION("a second run goes on where the first stopped") {
    fs::remove(folder / "requests");
    const SweepResult again = sweep(parse_problem(kProblem), options_for(command, 8), database);
    REQUIRE(again.rows.size() == 8);
    REQUIRE(again.reused == 6);
    REQUIRE(requests(folder, "trial").size() == 2);
    REQUIRE(requests(folder, "compile").size() == 2);
    REQUIRE(canonical_text(again.best->config) == order[2]);
    REQUIRE(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 8);
  }
  SECTION("another compiler's rows are not reused") {
    fs::remove(folder / "requests");
    const std::string other = fake_worker(folder, "measured 70", "", "C2");
    const SweepResult again = sweep(parse_problem(kProblem), options_for(other, 3), database);
    REQUIRE(again.reused == 0);
    REQUIRE(requests(folder, "trial").size() == 3);
  }
}

TEST_CASE("a sweep survives workers that crash, hang, lie and fail", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(9);
  const std::string command = fake_worker(
      folder, fmt::format(R"sh(case "$config" in
      "{}") measured 100 ;;
      "{}") kill -SEGV $$ ;;
      "{}") exec sleep 100 ;;
      "{}") echo 'what is it to you' ;;
      "{}") config="{}"; measured 1 ;;
      "{}") echo '{{"failed":"launch_failed","reason":"CUDA_ERROR_ILLEGAL_ADDRESS","last":true}}'; exit 1 ;;
      "{}") echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"status\":\"wrong_result\",\"reason\":\"o: NaN\",\"median_us\":1}}}}" ;;
      "{}") echo '{{"measurement":{{"config":17}}}}' ;;
      *) measured 80 ;; esac)sh",
                          order[0], order[1], order[2], order[3], order[4], order[0], order[5], order[6], order[7]));
  SweepOptions options = options_for(command, 9);
  options.trial_timeout_seconds = 1;
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.rows.size() == 9);
  using Status = MeasurementStatus;
  const Status expected[] = {Status::ok,           Status::crashed, Status::timed_out,
                             Status::crashed,      Status::crashed, Status::launch_failed,
                             Status::wrong_result, Status::crashed, Status::ok};
  for (std::size_t i = 0; i < 9; ++i) {
    INFO(i << ": " << result.rows[i].reason);
    REQUIRE(result.rows[i].status == expected[i]);
    REQUIRE(result.rows[i].reason.empty() == (expected[i] == Status::ok));
    REQUIRE(canonical_text(result.rows[i].config) == order[i]);
    REQUIRE(result.rows[i].device == "NVIDIA H200");
  }
  REQUIRE_THAT(result.rows[1].reason, ContainsSubstring("SIGSEGV"));
  REQUIRE_THAT(result.rows[3].reason, ContainsSubstring("what is it to you"));
  REQUIRE(canonical_text(result.best->config) == order[8]);
  REQUIRE(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 9);
}

TEST_CASE("a compilation that hangs or fails is a row, and never run", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(4);
  const std::string command = fake_worker(folder, "measured 80",
                                          fmt::format(R"sh(case "$config" in
      "{}") exec sleep 100 ;;
      "{}") echo '{{"status":"compile_failed","reason":"line 5"}}'; continue ;;
      "{}") exit 3 ;; esac;)sh",
                                                      order[1], order[2], order[3]));
  SweepOptions options = options_for(command, 4);
  options.compile_timeout_seconds = 0.5;
  options.compile_workers = GENERATE(0, 2);
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.rows.size() == 4);
  REQUIRE(result.rows[0].status == MeasurementStatus::ok);
  REQUIRE(result.rows[1].status == MeasurementStatus::compile_timed_out);
  REQUIRE(result.rows[2].status == MeasurementStatus::compile_failed);
  REQUIRE(result.rows[2].reason == "line 5");
  REQUIRE(result.rows[3].status == MeasurementStatus::crashed);
  REQUIRE(requests(folder, "trial").size() == 1);
}

TEST_CASE("a sweep ends with its budget, the default tried all the same", "[nogpu]") {
  const TemporaryFolder folder;
  SweepOptions options = options_for(fake_worker(folder, "measured 80"), 0);
  options.budget_seconds = 0;
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.ended_by == "budget");
  REQUIRE(result.rows.size() == 1);
  REQUIRE(result.best);
}

TEST_CASE("rows that cannot be stored are kept in the result and noted", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase nowhere{fs::path()};
  const SweepResult result =
      sweep(parse_problem(kProblem), options_for(fake_worker(folder, "measured 80"), 3), nowhere);
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.best);
  REQUIRE(result.notes.size() == 1);
  REQUIRE_THAT(result.notes[0], ContainsSubstring("not stored"));
}

TEST_CASE("what is at fault outside the configs ends the sweep, in the worker's words", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const AttentionProblem problem = parse_problem(kProblem);
  const auto run = [&](const std::string& body) {
    return sweep(problem, options_for(write_script(folder / "attune", body), 2), database);
  };
  REQUIRE_THROWS_WITH(run(R"sh(read -r line; echo '{"error":"there is no GPU cuda:0","code":4}')sh"),
                      ContainsSubstring("there is no GPU"));
  try {
    run(R"sh(read -r line; echo '{"error":"there is no GPU cuda:0","code":4}')sh");
  } catch (const Error& error) {
    REQUIRE(error.code() == ErrorCode::no_device);
  }
  REQUIRE_THROWS_WITH(run("echo 'cannot open shared object' >&2; exit 127"),
                      ContainsSubstring("cannot open shared object"));
  REQUIRE_THROWS_WITH(run("read -r line; echo hello"), ContainsSubstring("hello"));
  REQUIRE_THROWS_AS(run("read -r line; echo '[1,2]'"), Error);
  REQUIRE_THROWS_AS(run(R"sh(read -r line; echo '{"error":7,"code":"x"}')sh"), Error);

  SweepOptions options = options_for("/no/such/attune", 2);
  REQUIRE_THROWS_WITH(sweep(problem, options, database), ContainsSubstring("/no/such/attune"));
  options.device = "gpu";
  REQUIRE_THROWS_WITH(sweep(problem, options, database), ContainsSubstring("cuda:N"));
  AttentionProblem invalid = problem;
  invalid.head_dim = 65;
  REQUIRE_THROWS_AS(sweep(invalid, options_for("/no/such/attune", 2), database), Error);
  REQUIRE(database.list().empty());
}

TEST_CASE("reduced problems are of the same kernel class, small, with the same tails", "[nogpu]") {
  for (const char* text :
       {"forward bf16 b4 hq16 hkv4 sq4096 d128 causal", "forward fp16 b1 hq1 sq100000 skv77 d256",
        "forward bf16 b64 hq32 sq5 skv70001 d8 causal-top-left", "forward bf16 b1 hq64 hkv1 sq16384 d72 causal@-100"}) {
    INFO(text);
    const AttentionProblem problem = parse_problem(text);
    for (const char* config_text : {"sm80 q128 kv64 w4 st2", "sm80 q192 kv176 w4 st2", "sm80 q64 kv32 w4 st3"}) {
      const KernelConfig config = parse_config(config_text);
      const AttentionProblem reduced = reduced_problem(problem, config);
      REQUIRE_NOTHROW(validate(reduced));
      REQUIRE(reduced.head_dim == problem.head_dim);
      REQUIRE(reduced.mask == problem.mask);
      REQUIRE(reduced.dtype == problem.dtype);
      REQUIRE(reduced.seq_q % config.block_q == problem.seq_q % config.block_q);
      REQUIRE(reduced.seq_kv % config.block_kv == problem.seq_kv % config.block_kv);
      REQUIRE(reduced.seq_q <= problem.seq_q);
      REQUIRE(reduced.seq_kv <= problem.seq_kv);
      REQUIRE(count_flops(reduced) < 0.6e9);
      REQUIRE(count_flops(reduced) > 0);
    }
  }
  const AttentionProblem small = parse_problem("forward bf16 b1 hq2 sq128 d64");
  REQUIRE(reduced_problem(small, KernelConfig()) == small);
}

TEST_CASE("compiling ahead: once each, in order, never what the caller took", "[nogpu]") {
  std::mutex mutex;
  std::vector<std::size_t> compiled;
  std::vector<bool> wanted(20, true);
  wanted[3] = false;
  {
    CompileAhead ahead(wanted, 3, [&] {
      return [&](std::size_t index, const std::atomic<bool>&) {
        const std::lock_guard lock(mutex);
        compiled.push_back(index);
        return CompileOutcome{MeasurementStatus::ok, std::to_string(index)};
      };
    });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto outcome = ahead.take(i);
      if (i == 3) REQUIRE_FALSE(outcome);
      const std::lock_guard lock(mutex);
      if (outcome) {
        REQUIRE(outcome->reason == std::to_string(i));
      } else {
        compiled.push_back(i);  // as its caller does
      }
    }
  }
  REQUIRE(compiled.size() == wanted.size());
  REQUIRE(std::set<std::size_t>(compiled.begin(), compiled.end()).size() == wanted.size());

  SECTION("a thread that fails leaves its candidates to the caller") {
    CompileAhead failing(std::vector<bool>(3, true), 2, []() -> CompileAhead::Compile {
      return [](std::size_t, const std::atomic<bool>&) -> CompileOutcome { throw Error(ErrorCode::io, "no worker"); };
    });
    for (std::size_t i = 0; i < 3; ++i) REQUIRE_FALSE(failing.take(i));
  }
}

TEST_CASE("a worker refuses what is no request and goes on", "[nogpu]") {
  std::istringstream input(
      "nonsense\n{}\n{\"op\":\"dance\",\"device\":\"emulator\",\"spec\":{},\"problem\":\"forward bf16 b1 hq1 sq1 d64\","
      "\"config\":\"sm80\"}\n{\"op\":\"prepare\",\"device\":\"abacus\",\"spec\":{}}\n");
  std::ostringstream output;
  REQUIRE(run_worker(input, output) == 0);
  std::istringstream lines(output.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    INFO(line);
    const nlohmann::json answer = nlohmann::json::parse(line);
    REQUIRE(answer.at("code") == static_cast<int>(ErrorCode::invalid_argument));
    if (count == 3) REQUIRE_THAT(answer.at("error").get<std::string>(), ContainsSubstring("abacus"));
  }
  REQUIRE(count == 4);
}

TEST_CASE("devices by name", "[nogpu]") {
  REQUIRE(cuda_ordinal("cuda") == 0);
  REQUIRE(cuda_ordinal("cuda:3") == 3);
  for (const char* bad : {"", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "gpu"}) {
    INFO(bad);
    REQUIRE_THROWS_AS(cuda_ordinal(bad), Error);
  }
}

TEST_CASE("a sweep on the emulator proves candidates and ranks them by the cost model", "[emulator]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq2 hkv1 sq70 d64 causal");
  SweepOptions options = options_for(sibling_program("attune"), 3);
  options.device = "emulator";
  options.budget_seconds = 600;
  options.trial_timeout_seconds = 300;
  options.compile_timeout_seconds = 300;
  options.compile_workers = 1;
  const SweepResult result = sweep(problem, options, database);
  REQUIRE(result.rows.size() == 3);
  REQUIRE_FALSE(result.timed);
  for (const Measurement& row : result.rows) {
    INFO(canonical_text(row.config) << ": " << row.reason);
    REQUIRE(row.status == MeasurementStatus::ok);
    REQUIRE(row.rigor == Rigor::estimate);
    REQUIRE(row.samples_us.empty());
    REQUIRE(row.median_us == 0);
    REQUIRE(row.predicted_us > 0);
    REQUIRE(row.error_o > 0);
    REQUIRE_THAT(row.protocol, ContainsSubstring("cost model"));
  }
  const auto choice = database.find(problem, options.spec);
  REQUIRE(choice);
  REQUIRE(choice->config == result.best->config);
  REQUIRE_THAT(choice->detail, ContainsSubstring("by the cost model"));
  REQUIRE(sweep(problem, options, database).reused == 3);
}

TEST_CASE("a sweep on a GPU times its candidates", "[gpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const AttentionProblem problem = parse_problem("forward bf16 b2 hq8 sq2048 d128 causal");
  SweepOptions options = options_for(sibling_program("attune"), 24);
  options.spec = open_cuda_device(0)->spec();
  options.compile_workers = -1;
  const SweepResult result = sweep(problem, options, database);
  REQUIRE(result.timed);
  REQUIRE(result.best);
  REQUIRE(result.best->samples_us.size() >= 5);
  REQUIRE(result.default_measurement);
  REQUIRE(result.default_measurement->status == MeasurementStatus::ok);
  REQUIRE(result.best->median_us <= result.default_measurement->median_us);
  REQUIRE(sweep(problem, options, database).reused == static_cast<int>(result.rows.size()));
}
