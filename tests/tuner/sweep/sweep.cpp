#include "tuner/sweep/sweep.h"

#include <fmt/format.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/measurement_json.h"
#include "tuner/search/race.h"
#include "tuner/search/searcher.h"

using namespace attune;
using attune::test::sibling_program;
using attune::test::TemporaryFolder;
using attune::test::write_script;
namespace fs = std::filesystem;

namespace {

const char* const kProblem = "forward bf16 b1 hq8 sq1024 d64";

// A worker in shell: what it does on a trial, which has $config and $problem, is `on_trial`; in a race each config
// takes what its trial says, unless `on_race` does something else. It keeps a list of all requests.
struct FakeWorker {
  std::string on_trial, on_compile = "", on_race = "race_by_trials", compiler = "C1", device = "NVIDIA H200";
};

std::string fake_worker(const TemporaryFolder& folder, const FakeWorker& fake) {
  return write_script(folder / "attune", fmt::format(R"sh(
exec 2>/dev/null
measured() {{
  echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"samples_us\":[$1],\"median_us\":$1,\"rigor\":\"measure\"}}}}"
}}
on_trial() {{
  {1}
}}
race_by_trials() {{
  samples=""; clocks=""
  old=$IFS; IFS=,
  for quoted in $configs; do
    config=${{quoted#?}}; config=${{config%?}}
    IFS=$old
    t=$(on_trial | sed -n 's/.*"median_us":\([0-9.]*\).*/\1/p')
    IFS=,
    samples="$samples,[$t,$t,$t,$t,$t,$t,$t,$t]"; clocks="$clocks,[1500,1500,1500,1500,1500,1500,1500,1500]"
  done
  IFS=$old
  echo "{{\"race\":{{\"samples_us\":[${{samples#,}}],\"clocks_mhz\":[${{clocks#,}}],\"protocol\":\"in turns\"}}}}"
}}
while read -r line; do
  config=$(printf '%s' "$line" | sed -n 's/.*"config":"\([^"]*\)".*/\1/p')
  configs=$(printf '%s' "$line" | sed -n 's/.*"configs":\[\([^]]*\)\].*/\1/p')
  problem=$(printf '%s' "$line" | sed 's/.*"problem":"\([^"]*\)".*/\1/')
  device=$(printf '%s' "$line" | sed 's/.*"device":"\([^"]*\)".*/\1/')
  op=$(printf '%s' "$line" | sed 's/.*"op":"\([a-z]*\)".*/\1/')
  echo "$op $config$configs" >> {0}/requests
  echo "$op $device" >> {0}/devices
  case $op in
    prepare) echo '{{"prepared":true}}' ;;
    identify) echo '{{"device_name":"{5}","sm_count":132,"compiler":"{4}","driver":"D1","can_time":true}}' ;;
    compile) {2} echo '{{"status":"ok","reason":""}}' ;;
    trial) on_trial ;;
    race) {3} ;;
  esac
done
)sh",
                                                     folder.path().string(), fake.on_trial, fake.on_compile,
                                                     fake.on_race, fake.compiler, fake.device));
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

// What a search without earlier rows asks for first, if nothing improves.
std::vector<std::string> expected_order(std::size_t count, SpaceExtent extent = SpaceExtent::whole) {
  const AttentionProblem problem = parse_problem(kProblem);
  const DeviceSpec& h200 = find_device("h200");
  std::vector<Candidate> space;
  for (Candidate& candidate : config_space(problem, h200, extent)) {
    if (candidate.feasible()) space.push_back(std::move(candidate));
  }
  std::vector<KernelConfig> seeds = {default_config(problem, h200)};
  for (const KernelConfig& seed : published_seeds(problem, space)) seeds.push_back(seed);
  const Searcher searcher(space, seeds,
                          {.model_top = effort_of(Rigor::measure, space.size()).model_top, .patience = 1});
  std::vector<std::string> configs;
  for (const std::size_t index : searcher.upcoming(count)) configs.push_back(canonical_text(space[index].config));
  return configs;
}

}  // namespace

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
    for (Measurement& row : rows) row.source_hash = row.config.family == KernelFamily::sm80 ? of_sm80 : of_sm90;
    TuningDatabase other(folder / "other.db");
    REQUIRE(other.append_all(rows).added == 6 + 2);
    return sweep(parse_problem(kProblem), options_for(command, 8), other).reused;
  };
  SECTION("rows of another source are not reused") { REQUIRE(reused_of("0123456789abcdef", "0123456789abcdef") == 0); }
  SECTION("rows of version 0.1 are reused if they are of its last templates") {
    REQUIRE(reused_of("templates:a2c9197d29983644", "templates:e9cbd44099937a8d") == 6);
  }
  SECTION("rows of older templates are not reused") {
    REQUIRE(reused_of("templates:b0bcabef404e750d", "templates:35fc064fb9071e9f") == 0);
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

TEST_CASE("rows that cannot be stored are kept in the result and noted", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase nowhere{fs::path()};
  const SweepResult result =
      sweep(parse_problem(kProblem), options_for(fake_worker(folder, {"measured 80"}), 3), nowhere);
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.best);
  REQUIRE(result.notes.size() == 1);
  REQUIRE_THAT(result.notes[0], ContainsSubstring("not stored"));
}

namespace {

// Files of this process end at 8 KiB: a disk that is full for a while.
class SmallFiles {
 public:
  SmallFiles() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{8192, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("what could not be stored for a while is stored by the same sweep", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const int until = GENERATE(4, 99);  // the last: until the trials have ended
  std::optional<SmallFiles> full;
  int done = 0;
  SweepResult result;
  {
    SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 8);
    options.budget_seconds = 60;
    result = sweep(parse_problem(kProblem), options, database, [&](const SweepProgress& progress) {
      done = progress.done;
      if (done == 2) full.emplace();
      if (done == until || done == 8) full.reset();
    });
  }
  REQUIRE(result.rows.size() == 8);
  REQUIRE_FALSE(result.not_stored);
  REQUIRE(result.unsaved.empty());
  REQUIRE(result.notes.empty());
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 8);
}

TEST_CASE("another program's lock of 12 s costs a sweep no row", "[nogpu][slow]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  std::thread locker;
  std::promise<bool> locked;
  const auto hold_lock = [&] {
    sqlite3* other = nullptr;
    sqlite3_open((folder / "tuning.db").c_str(), &other);
    sqlite3_busy_timeout(other, 1000);
    locked.set_value(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    std::this_thread::sleep_for(std::chrono::seconds(12));
    sqlite3_close(other);
  };
  bool was_locked = false;
  const SweepResult result = sweep(parse_problem(kProblem), options_for(fake_worker(folder, {"measured 80"}), 8),
                                   database, [&](const SweepProgress& progress) {
                                     if (progress.done != 2 || locker.joinable()) return;
                                     locker = std::thread(hold_lock);
                                     was_locked = locked.get_future().get();
                                   });
  locker.join();
  REQUIRE(was_locked);
  REQUIRE(result.rows.size() == 8);
  REQUIRE(result.best);
  REQUIRE(result.unsaved.empty());
  REQUIRE_FALSE(result.not_stored);
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 8);
}

TEST_CASE("one row that cannot be stored costs that row, and is kept", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const auto order = expected_order(6);
  // The column of p20 is NOT NULL, which a NaN is in SQLite.
  const std::string command = fake_worker(folder, {fmt::format(R"sh(if [ "$config" = "{}" ]; then
    echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"status\":\"wrong_result\",\"p20_us\":\"nan\",\"rigor\":\"measure\"}}}}"
  else measured 80; fi)sh",
                                                               order[2])});
  const SweepResult result = sweep(parse_problem(kProblem), options_for(command, 6), database);
  REQUIRE(result.rows.size() == 6);
  REQUIRE(result.best);
  REQUIRE(result.not_stored);
  REQUIRE(result.unsaved.size() == 1);
  REQUIRE(canonical_text(result.unsaved[0].config) == order[2]);
  REQUIRE(result.notes.size() == 1);
  REQUIRE_THAT(result.notes[0], ContainsSubstring("1 of ") && ContainsSubstring("tuning.db"));
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 5);
  REQUIRE_FALSE(stored.contains(order[2]));
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
  for (const char* text : {"forward bf16 b4 hq16 hkv4 sq4096 d128 causal", "forward fp16 b1 hq1 sq100000 skv77 d256",
                           "forward bf16 b64 hq32 sq5 skv70001 d8 causal-top-left",
                           "backward bf16 b4 hq16 hkv4 sq4096 d128 causal deterministic",
                           "forward bf16 b1 hq64 hkv1 sq16384 d72 causal@-100"}) {
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

TEST_CASE("a race decides, and its rows say so", "[nogpu]") {
  const TemporaryFolder folder;
  const auto order = expected_order(6);
  const AttentionProblem problem = parse_problem(kProblem);
  // By their trials the second is the fastest, by luck; the third and the fourth are within reach, the fifth is not.
  const auto worker = [&](const std::string& on_race) {
    return fake_worker(folder, {.on_trial = fmt::format(R"sh(case "$config" in
      "{}") measured 100 ;; "{}") measured 80 ;; "{}") measured 81 ;; "{}") measured 82 ;; *) measured 99 ;; esac)sh",
                                                        order[0], order[1], order[2], order[3]),
                                .on_race = on_race});
  };
  const auto times = [](const std::vector<double>& of_finalists, int rounds = 8) {
    std::string samples, clocks;
    for (const double time : of_finalists) {
      samples += (samples.empty() ? "[" : ",[") + std::to_string(time);
      clocks += clocks.empty() ? "[1500" : ",[1500";
      for (int i = 1; i < rounds; ++i) {
        samples += "," + std::to_string(time);
        clocks += ",1500";
      }
      samples += "]";
      clocks += "]";
    }
    return fmt::format(R"sh(echo '{{"race":{{"samples_us":[{}],"clocks_mhz":[{}],"protocol":"in turns"}}}}')sh",
                       samples, clocks);
  };
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for("", 6);
  options.trial_timeout_seconds = 1;

  SECTION("the faster in turns wins, whatever the trials said") {
    options.command = worker(times({85, 84, 80, 100}));
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(requests(folder, "race") == std::multiset<std::string>{fmt::format("\"{}\",\"{}\",\"{}\",\"{}\"", order[1],
                                                                               order[2], order[3], order[0])});
    REQUIRE(result.notes.empty());
    REQUIRE(result.finalists.size() == 4);
    const std::string expected[] = {order[3], order[2], order[1], order[0]};
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(canonical_text(result.finalists[i].config) == expected[i]);
      REQUIRE(result.finalists[i].place == static_cast<int>(i) + 1);
      REQUIRE(result.finalists[i].race == result.finalists[0].race);
      REQUIRE(result.finalists[i].samples_us.size() == 8);
      REQUIRE(result.finalists[i].protocol == "in turns");
      REQUIRE(result.finalists[i].sm_clock_mhz == 1500);
    }
    REQUIRE_FALSE(result.finalists[0].race.empty());
    REQUIRE(result.best->median_us == 80);
    REQUIRE(result.default_measurement->place == 4);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[3]);
    // The same finalists are not raced again.
    fs::remove(folder / "requests");
    const SweepResult again = sweep(problem, options, database);
    REQUIRE(again.race_reused);
    REQUIRE(requests(folder, "race").empty());
    REQUIRE(canonical_text(again.best->config) == order[3]);
  }
  SECTION("the default wins a tie") {
    options.command = worker(times({80, 80, 80, 80.3}));
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(canonical_text(result.best->config) == order[0]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[0]);
  }
  SECTION("a race that fails elects the default, and is noted") {
    const std::string failure =
        GENERATE(as<std::string>{}, "exec sleep 100", "exit 3", "echo nonsense",
                 R"(echo '{"failed":"launch_failed","reason":"too hot"}')",
                 R"(echo '{"race":{"samples_us":[[1],[1]],"clocks_mhz":[[1],[1]],"protocol":"x"}}')",
                 R"(echo '{"race":{"samples_us":"many"}}')");
    INFO(failure);
    options.command = worker(failure);
    const SweepResult result = sweep(problem, options, database);
    REQUIRE(result.finalists.empty());
    REQUIRE(result.notes.size() == 1);
    REQUIRE_THAT(result.notes[0], ContainsSubstring("race"));
    REQUIRE_FALSE(result.not_stored);
    REQUIRE(canonical_text(result.best->config) == order[0]);
    REQUIRE(database.find_all(problem, "NVIDIA H200", 132).size() == 6);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[0]);
    REQUIRE(is_election(*database.best(problem, "NVIDIA H200", 132)));
    REQUIRE(database.list().at(0).raced == 0);
    // What a race decides later counts, and still does after another that failed.
    options.command = worker(times({80, 84, 85, 100}));
    REQUIRE(canonical_text(sweep(problem, options, database).best->config) == order[1]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[1]);
    options.rigor = Rigor::patient;  // for which all is tried again
    options.command = worker(failure);
    const SweepResult again = sweep(problem, options, database);
    REQUIRE(again.reused == 0);
    REQUIRE(canonical_text(again.best->config) == order[1]);
    REQUIRE(canonical_text(database.best(problem, "NVIDIA H200", 132)->config) == order[1]);
  }
}

TEST_CASE("how far a sweep goes: rigor, patience, extent", "[nogpu]") {
  const TemporaryFolder folder;
  const AttentionProblem problem = parse_problem(kProblem);
  TuningDatabase database(folder / "tuning.db");
  SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 0);
  options.extent = SpaceExtent::reduced;

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
    // Of the smallest space that is at hand.
    const AttentionProblem wide = parse_problem("forward bf16 b1 hq8 sq1024 d256");
    options.rigor = Rigor::exhaustive;
    options.compile_workers = 0;
    const SweepResult result = sweep(wide, options, database);
    REQUIRE(result.ended_by == "space exhausted");
    REQUIRE(result.rows.size() == result.space_size);
    REQUIRE(result.space_size > 50);
  }
}

TEST_CASE("patience grows with the space, within bounds", "[nogpu]") {
  for (const auto& [size, patience] : {std::pair(10, 15), {375, 15}, {500, 20}, {900, 36}, {11000, 40}}) {
    INFO(size);
    CHECK(effort_of(Rigor::measure, static_cast<std::size_t>(size)).patience == patience);
  }
  CHECK(effort_of(Rigor::patient, 500).patience == 100);
  CHECK(effort_of(Rigor::exhaustive, 500).patience == 0);
}

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
  // Of old templates: its time is stale, the choice is still worth trying.
  database.append(row(problem, "sm80 q64 kv48 w2 st2 rescale8", "T0"));
  database.append(row(neighbour, "sm80 q64 kv112 w4 st2 rescale8", "T0"));
  const std::string command = fake_worker(folder, {"measured 80"});
  const SweepResult result = sweep(problem, options_for(command, 3), database);
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.rows[0].config == default_config(problem, find_device("h200")));
  REQUIRE(canonical_text(result.rows[1].config) == "sm80 q64 kv48 w2 st2 rescale8");
  REQUIRE(canonical_text(result.rows[2].config) == "sm80 q64 kv112 w4 st2 rescale8");

  SECTION("and from what the presets know") {
    const auto presets = std::make_shared<TuningDatabase>(folder / "presets.db");
    presets->append(row(problem, "sm80 q128 kv112 w8 st1 rescale8", "T0"));
    SweepOptions options = options_for(command, 4);
    options.presets = presets;
    const SweepResult seeded = sweep(problem, options, database);
    REQUIRE(canonical_text(seeded.rows[1].config) == "sm80 q128 kv112 w8 st1 rescale8");
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
  SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 0);
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
