#include "tuner/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/tuner/sweep/fake_worker.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::expected_order;
using attune::test::fake_worker;
using attune::test::kProblem;
using attune::test::options_for;
using attune::test::requests;
using attune::test::sibling_program;
using attune::test::TemporaryFolder;
using attune::test::write_script;
namespace fs = std::filesystem;

TEST_CASE("a sweep tries the default first, then what the searcher proposes, and stores every row", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(6);
  // The third is the fastest.
  const std::string command = fake_worker(
      folder, {fmt::format("if [ \"$config\" = \"{}\" ]; then measured 50; else measured 90; fi", order[2])});
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
  REQUIRE(stored.size() == 6 + 2);  // and the race between the fastest and the default
  REQUIRE(stored[2].compiler == "C1");
  REQUIRE(stored[2].predicted_us > 0);
  for (const Measurement& row : stored)
    REQUIRE(row.source_hash == generate(row.problem, row.config, find_device("h200")).source_hash());
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
    REQUIRE(again.race_reused);
    REQUIRE(requests(folder, "race").empty());
    REQUIRE(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 8 + 2);
  }
  SECTION("another compiler's rows are not reused") {
    fs::remove(folder / "requests");
    const std::string other = fake_worker(folder, {.on_trial = "measured 70", .compiler = "C2"});
    const SweepResult again = sweep(parse_problem(kProblem), options_for(other, 3), database);
    REQUIRE(again.reused == 0);
    REQUIRE(requests(folder, "trial").size() == 3);
  }
  const auto reused_of = [&](const std::string& of_sm80, const std::string& of_sm90) {
    auto rows = stored;
    for (Measurement& row : rows) row.source_hash = row.config.family == FamilyWord::sm80 ? of_sm80 : of_sm90;
    TuningDatabase other(folder / "other.db");
    REQUIRE(other.append_all(rows).added == 6 + 2);
    return sweep(parse_problem(kProblem), options_for(command, 8), other).reused;
  };
  SECTION("rows of another source are not reused") { REQUIRE(reused_of("0123456789abcdef", "0123456789abcdef") == 0); }
  SECTION("rows of version 0.1 are reused if they are of its last templates, and their kernels have not changed") {
    const auto of_sm80 =
        std::count_if(order.begin(), order.end(), [](const std::string& config) { return config.starts_with("sm80"); });
    REQUIRE(of_sm80 > 0);
    REQUIRE(reused_of("templates:a2c9197d29983644", "templates:e9cbd44099937a8d") == of_sm80);
  }
  SECTION("rows of older templates are not reused") {
    REQUIRE(reused_of("templates:b0bcabef404e750d", "templates:35fc064fb9071e9f") == 0);
  }
}

TEST_CASE("a trial that the GPU's heat left without a time is not stored, and tried again later", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(3);
  const std::string untimed =
      "echo \"{\\\"measurement\\\":{\\\"problem\\\":\\\"$problem\\\",\\\"config\\\":\\\"$config\\\","
      "\\\"reason\\\":\\\"too hot\\\",\\\"rigor\\\":\\\"measure\\\"}}\"";
  const AttentionProblem problem = parse_problem(kProblem);
  for (const std::size_t hot : {std::size_t{0}, std::size_t{2}}) {  // the default, and another
    TuningDatabase database(folder / fmt::format("tuning{}.db", hot));
    const TemporaryFolder workers;
    const std::string times = "measured 90";
    const std::string some =
        fmt::format("if [ \"$config\" = \"{}\" ]; then {}; else {}; fi", order[hot], untimed, times);
    const SweepResult result = sweep(problem, options_for(fake_worker(workers, {some}), 3), database);
    REQUIRE(result.rows.size() == 3);
    REQUIRE(result.best);
    REQUIRE(result.notes.front().find("1 trial was not timed and not stored (too hot)") != std::string::npos);
    for (const Measurement& row : database.find_all(problem, "NVIDIA H200", 132)) {
      REQUIRE(canonical_text(row.config) != order[hot]);
      REQUIRE(row.median_us > 0);
    }
    const TemporaryFolder cool;
    REQUIRE(sweep(problem, options_for(fake_worker(cool, {times}), 3), database).notes.empty());
    REQUIRE(requests(cool, "trial") == std::multiset<std::string>{order[hot]});
    REQUIRE(database.find_all(problem, "NVIDIA H200", 132).size() > 3);
  }
}

TEST_CASE("a trial is told from which time on its config has no chance", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string list = (folder / "limits").string();
  const std::string command =
      fake_worker(folder, {fmt::format(R"sh(printf '%s\n' "$line" | sed -n 's/.*"hopeless_us":\([0-9.]*\).*/\1/p' >> {0}
  measured $((100 - 10 * $(wc -l < {0}))))sh",
                                       list)});
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for(command, 3);
  REQUIRE(sweep(parse_problem(kProblem), options, database).rows.size() == 3);
  std::vector<double> limits;
  std::ifstream file(list);
  for (double limit = 0; file >> limit;) limits.push_back(limit);
  REQUIRE(limits.size() >= 3);  // the fake's race asks its trials again
  REQUIRE(limits[0] == 0);
  REQUIRE(limits[1] > 90);
  REQUIRE(limits[1] < 2 * 90);
  REQUIRE(limits[2] < limits[1]);
  REQUIRE(limits[2] > 80);
}

TEST_CASE("a sweep ends with its budget, the default tried all the same", "[nogpu]") {
  const TemporaryFolder folder;
  SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 0);
  options.budget_seconds = 1e-6;
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.ended_by == "budget");
  REQUIRE(result.rows.size() == 1);
  REQUIRE(result.best);
}

TEST_CASE("how far a sweep goes: rigor, patience, extent", "[nogpu]") {
  const TemporaryFolder folder;
  const AttentionProblem problem = parse_problem(kProblem);
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 0);

  SECTION("patience ends it") {
    options.patience = 4;
    const SweepResult result = sweep(problem, options, database);
    const std::size_t opening = requests(folder, "trial").size() - 4;
    REQUIRE(result.ended_by == "patience");
    REQUIRE(opening >= 11);
    REQUIRE(opening <= 15);
    REQUIRE(result.rigor == Rigor::measure);
    REQUIRE(result.rows[0].rigor == Rigor::measure);
    // A lower rigor is answered by these rows, a higher one is not.
    options.rigor = Rigor::patient;
    options.max_candidates = 3;
    REQUIRE(sweep(problem, options, database).reused == 0);
    options.rigor = Rigor::measure;
    REQUIRE(sweep(problem, options, database).reused == 3);
  }
  SECTION("estimate times nothing") {
    options.rigor = Rigor::estimate;
    options.max_candidates = 4;
    const SweepResult result = sweep(problem, options, database);
    REQUIRE_FALSE(result.timed);
    REQUIRE(result.finalists.empty());
    REQUIRE(requests(folder, "race").empty());
    for (const Measurement& row : result.rows) REQUIRE(row.rigor == Rigor::estimate);
  }
  SECTION("exhaustive tries every config of the space, without end of patience or budget") {
    // A problem of the smallest space that is at hand.
    const AttentionProblem wide = parse_problem("forward bf16 b1 hq8 sq1024 d256");
    options.rigor = Rigor::exhaustive;
    options.compile_workers = 0;
    const SweepResult result = sweep(wide, options, database);
    REQUIRE(result.ended_by == "space exhausted");
    REQUIRE(result.rows.size() == result.space_size);
    REQUIRE(result.space_size > 50);
  }
}

TEST_CASE("several GPUs share the candidates of a problem, each its own worker", "[nogpu]") {
  const TemporaryFolder folder;
  SweepOptions options = options_for(fake_worker(folder, {"sleep 0.02; measured 80"}), 12);
  options.device = "cuda:0,2,3";
  TuningDatabase database(folder / "tuning.db");
  const SweepResult result = sweep(parse_problem(kProblem), options, database);
  REQUIRE(result.rows.size() == 12);
  std::map<std::string, int> trials;
  std::ifstream file(folder / "devices");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("trial ")) ++trials[line.substr(6)];
    if (line.starts_with("race ")) REQUIRE(line == "race cuda:0");
  }
  REQUIRE(trials.size() == 3);
  REQUIRE(trials["cuda:0"] + trials["cuda:2"] + trials["cuda:3"] == 12);
  // Rows say which GPU they are of: trials that of their own worker, the race that of the one that ran it.
  std::map<std::string, int> rows_of;
  for (const Measurement& row : result.rows) {
    REQUIRE(row.node.host == "node-7");
    REQUIRE(row.node.power_limit_w == 700);
    ++rows_of[row.node.gpu_uuid];
  }
  REQUIRE(rows_of == std::map<std::string, int>{{"GPU-of-cuda:0", trials["cuda:0"]},
                                                {"GPU-of-cuda:2", trials["cuda:2"]},
                                                {"GPU-of-cuda:3", trials["cuda:3"]}});
  REQUIRE_FALSE(result.finalists.empty());
  for (const Measurement& row : result.finalists) REQUIRE(row.node.gpu_uuid == "GPU-of-cuda:0");
  // Each config once.
  const auto tried = requests(folder, "trial");
  REQUIRE(std::set<std::string>(tried.begin(), tried.end()).size() == 12);

  SECTION("trouble with one of them ends the sweep in its words") {
    const std::string command = write_script(folder / "attune", R"sh(
read -r line
case "$line" in
  *cuda:2*) echo '{"error":"there is no GPU cuda:2","code":4}' ;;
  *) echo '{"device_name":"NVIDIA H200","sm_count":132,"compiler":"C2","driver":"D1","can_time":true}'
     while read -r line; do sleep 0.05; echo '{"status":"ok","reason":"","failed":"launch_failed"}'; done ;;
esac)sh");
    options.command = command;
    REQUIRE_THROWS_WITH(sweep(parse_problem(kProblem), options, database), ContainsSubstring("there is no GPU cuda:2"));
  }
  SECTION("GPUs of two models are refused") {
    options.command = write_script(folder / "attune", R"sh(
read -r line
case "$line" in *cuda:2*) name="NVIDIA A100" ;; *) name="NVIDIA H200" ;; esac
echo "{\"device_name\":\"$name\",\"sm_count\":132,\"compiler\":\"C2\",\"driver\":\"D1\",\"can_time\":true}"
while read -r line; do echo '{"status":"ok","reason":"","failed":"launch_failed"}'; done)sh");
    REQUIRE_THROWS_WITH(sweep(parse_problem(kProblem), options, database),
                        ContainsSubstring("one model") && ContainsSubstring("NVIDIA A100"));
  }
}

TEST_CASE("a sweep that is asked to stop keeps what it has, and goes on later", "[nogpu]") {
  const TemporaryFolder folder;
  std::atomic<bool> stop = false;
  const auto order = expected_order(5);
  // The fourth takes for ever.
  SweepOptions options = options_for(
      fake_worker(folder,
                  {fmt::format("if [ \"$config\" = \"{}\" ]; then exec sleep 100; else measured 80; fi", order[3])}),
      5);
  options.stop = &stop;
  TuningDatabase database(folder / "tuning.db");
  const auto begin = std::chrono::steady_clock::now();
  const SweepResult result = sweep(parse_problem(kProblem), options, database, [&](const SweepProgress& progress) {
    if (progress.done == 3) stop = true;
  });
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  REQUIRE(result.ended_by == "interrupted");
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.finalists.empty());
  REQUIRE(database.find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 3);
  REQUIRE(canonical_text(result.best->config) == order[0]);
  REQUIRE(canonical_text(database.best(parse_problem(kProblem), "NVIDIA H200", 132)->config) == order[0]);

  stop = false;
  options.command = fake_worker(folder, {"measured 80"});
  const SweepResult again = sweep(parse_problem(kProblem), options, database);
  REQUIRE(again.reused == 3);
  REQUIRE(again.rows.size() == 5);
  REQUIRE(again.ended_by == "max candidates");
}

TEST_CASE("progress says what is to come", "[nogpu]") {
  const TemporaryFolder folder;
  // Compilers are slow, so that some are still at it after the first trial.
  SweepOptions options = options_for(fake_worker(folder, {.on_trial = "measured 80", .on_compile = "sleep 0.3;"}), 0);
  options.patience = 3;
  TuningDatabase database(folder / "tuning.db");
  std::vector<SweepProgress> seen;
  const SweepResult result =
      sweep(parse_problem(kProblem), options, database, [&](const SweepProgress& p) { seen.push_back(p); });
  REQUIRE(seen.size() == result.rows.size());
  for (const SweepProgress& progress : seen) {
    REQUIRE(progress.total == static_cast<int>(result.rows.size()));
    REQUIRE(progress.seconds_left);
    REQUIRE(*progress.seconds_left >= 0);
    REQUIRE(*progress.seconds_left <= 60);
  }
  REQUIRE(*seen.back().seconds_left == 0);
  REQUIRE(seen.front().compile_queue > 0);
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
  const auto best = database.best(problem, options.spec.name, options.spec.sm_count);
  REQUIRE(best);
  REQUIRE(best->config == result.best->config);
  REQUIRE(best->rigor == Rigor::estimate);
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
  REQUIRE_FALSE(result.finalists.empty());
  REQUIRE(result.best->place == 1);
  REQUIRE(result.best->median_us <= result.default_measurement->median_us);
  // The same again begins with the winner, so that it may propose others too; none is tried twice.
  const SweepResult again = sweep(problem, options, database);
  std::set<std::string> tried;
  for (const SweepResult* each : {&result, &again}) {
    for (const Measurement& row : each->rows) tried.insert(canonical_text(row.config));
  }
  REQUIRE(again.reused > 0);
  REQUIRE(again.reused + (tried.size() - result.rows.size()) == again.rows.size());
}
