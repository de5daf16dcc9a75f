#include "tuner/sweep/sweep_lane.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/sweep/fake_worker.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::expected_order;
using attune::test::fake_worker;
using attune::test::kProblem;
using attune::test::options_for;
using attune::test::requests;
using attune::test::TemporaryFolder;
using attune::test::write_script;

TEST_CASE("a sweep survives workers that crash, hang, lie and fail", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(9);
  const std::string command = fake_worker(
      folder, {fmt::format(R"sh(case "$config" in
      "{}") measured 100 ;;
      "{}") kill -SEGV $$ ;;
      "{}") exec sleep 100 ;;
      "{}") echo 'what is it to you' ;;
      "{}") config="{}"; measured 1 ;;
      "{}") echo '{{"failed":"launch_failed","reason":"CUDA_ERROR_ILLEGAL_ADDRESS","last":true}}'; exit 1 ;;
      "{}") echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"status\":\"wrong_result\",\"reason\":\"o: NaN\",\"median_us\":1}}}}" ;;
      "{}") echo '{{"measurement":{{"config":17}}}}' ;;
      *) measured 80 ;; esac)sh",
                           order[0], order[1], order[2], order[3], order[4], order[0], order[5], order[6], order[7])});
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
  REQUIRE(result.finalists.size() == 2);  // with the default
  REQUIRE(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 9 + 2);
}

TEST_CASE("an answer that is none costs its own trial alone", "[nogpu]") {
  const TemporaryFolder folder;
  const std::vector<std::string> answers = {R"(echo '{"error":"a contract was broken","code":12}')",
                                            R"(echo '{"error":"no code at all"}')",
                                            R"(echo '{"error":"a code of another world","code":1e300}')",
                                            R"(echo '{"measurement":{"sm_count":1e300}}')",
                                            R"(echo '{"measurement":{"median_us":1e9999}}')",
                                            R"(echo '{"measurement":{"samples_us":[[1]]}}')",
                                            R"(echo '{"measurement":[]}')",
                                            R"(echo '[]')",
                                            R"(echo '{"failed":7}')",
                                            R"(printf '{"failed":"launch_failed","reason":"\\377"}\n')",
                                            R"(printf '%100000s\n' '' | tr ' ' '[')",
                                            R"(printf '{"measurement":%100000s\n' '' | sed 's/ /{"a":/g')",
                                            R"(echo '{"status":"ok","status":"ok"}')"};
  const auto order = expected_order(answers.size() + 2);
  std::string cases;
  for (std::size_t i = 0; i < answers.size(); ++i) cases += fmt::format("\"{}\") {} ;;\n", order[i + 1], answers[i]);
  const std::string command =
      fake_worker(folder, {fmt::format("case \"$config\" in {} *) measured 80 ;; esac", cases)});
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result =
      sweep(parse_problem(kProblem), options_for(command, static_cast<int>(order.size())), database);
  REQUIRE(result.rows.size() == order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    INFO(i << ": " << result.rows[i].reason);
    const bool answered = i == 0 || i + 1 == order.size();
    if (!answered) REQUIRE(canonical_text(result.rows[i].config) == order[i]);
    CHECK(result.rows[i].status == (answered ? MeasurementStatus::ok : MeasurementStatus::crashed));
    CHECK(result.rows[i].reason.size() < 500);
  }
}

TEST_CASE("a worker that cannot be prepared again costs a trial; one after the other end the sweep", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(4);
  // The worker that follows one that died answers "prepare" with something else, once.
  const std::string nonsense_after_death =
      fmt::format(R"sh(case "$config" in "{}") touch {}/died; kill -SEGV $$ ;; *) measured 80 ;; esac)sh", order[0],
                  folder.path().string());
  const std::string command = fake_worker(folder, {nonsense_after_death});
  const std::string always = GENERATE("no", "yes");
  std::string script = [&] {
    std::ifstream file(command);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const std::string prepared = "prepare) echo '{\"prepared\":true}' ;;";
  const std::size_t at = script.find(prepared);
  REQUIRE(at != std::string::npos);
  script.replace(at, prepared.size(),
                 fmt::format("prepare) if [ -e {0}/died ]; then [ {1} = yes ] || rm {0}/died; echo 'who?'; else echo "
                             "'{{\"prepared\":true}}'; fi ;;",
                             folder.path().string(), always));
  std::ofstream(command) << script;
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for(command, 4);
  options.compile_workers = 0;
  if (always == "yes") {
    REQUIRE_THROWS_WITH(sweep(parse_problem(kProblem), options, database), ContainsSubstring("who?"));
    CHECK(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 3);
    return;
  }
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.rows.size() == 4);
  CHECK(result.rows[1].status == MeasurementStatus::crashed);
  CHECK_THAT(result.rows[1].reason, ContainsSubstring("who?"));
  CHECK(result.rows[2].status == MeasurementStatus::ok);
}

TEST_CASE("a compilation that hangs or fails is a row, and never run", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(4);
  const std::string command = fake_worker(folder, {"measured 80", fmt::format(R"sh(case "$config" in
      "{}") exec sleep 100 ;;
      "{}") echo '{{"status":"compile_failed","reason":"line 5"}}'; continue ;;
      "{}") exit 3 ;; esac;)sh",
                                                                              order[1], order[2], order[3])});
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

TEST_CASE("a race's answer has the times that were asked for, or none of it is believed", "[nogpu]") {
  const TemporaryFolder folder;
  const auto answer = [](const std::string& wide) {
    return R"sh(echo '{"race":{"samples_us":[[1,2],[3,4]],)sh" + wide +
           R"sh("clocks_mhz":[[1500,1500],[1500,1500]],"protocol":"in turns"}}')sh";
  };
  const AttentionProblem problem = parse_problem(kProblem);
  const std::vector<KernelConfig> configs = {parse_config("sm80 q128 kv64 w4 st2"),
                                             parse_config("sm80 q64 kv64 w4 st2")};
  const auto race = [&](const std::string& wide, bool asked) {
    const SweepOptions options =
        options_for(fake_worker(folder, {.on_trial = "measured 80", .on_race = answer(wide)}), 2);
    SweepLane lane(problem, options, "cuda:0");
    RaceOptions how;
    how.wide = asked;
    return lane.race(configs, how);
  };
  const RaceTimes both = race(R"("wide_samples_us":[[5,6],[7,8]],)", true);
  CHECK(both.complaint.empty());
  CHECK(both.samples_us == std::vector<std::vector<double>>{{1, 2}, {3, 4}});
  CHECK(both.wide_samples_us == std::vector<std::vector<double>>{{5, 6}, {7, 8}});
  const RaceTimes narrow = race("", false);
  CHECK(narrow.complaint.empty());
  CHECK(narrow.wide_samples_us.empty());
  const char* const wrong[] = {"",
                               R"("wide_samples_us":[],)",
                               R"("wide_samples_us":[[5,6]],)",
                               R"("wide_samples_us":[[5,6],[7]],)",
                               R"("wide_samples_us":[[5],[7]],)",
                               R"("wide_samples_us":[[5,6,7],[7,8,9]],)",
                               R"("wide_samples_us":[[5,6],[7,0]],)",
                               R"("wide_samples_us":[[5,6],[7,-8]],)",
                               R"("wide_samples_us":[[5,6],[7,"8"]],)",
                               R"("wide_samples_us":7,)"};
  for (const char* wide : wrong) {
    INFO(wide);
    const RaceTimes times = race(wide, true);
    CHECK_FALSE(times.complaint.empty());
    CHECK(times.samples_us.empty());
  }
  CHECK_FALSE(race(R"("wide_samples_us":[[5,6],[7,8]],)", false).complaint.empty());  // nobody asked
}
