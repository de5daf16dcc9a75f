// Sweeps over candidates that misbehave, those of tests/hostile.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/scoped_variable.h"
#include "tests/tuner/database/left_behind.h"
#include "tests/tuner/test_files.h"
#include "tests/tuner/trial/hostile_templates.h"
#include "tuner/sweep/sweep.h"
#include "tuner/trial/precompile.h"
#include "tuner/trial/trial.h"

using namespace attune;
using namespace attune::test;
using attune::testing::ScopedVariable;
using Status = MeasurementStatus;
namespace fs = std::filesystem;

namespace {

// What a sweep is to say of a behaviour.
struct Verdict {
  Status status;
  std::string reason;  // a part of it
};

// Where a sweep runs, and on what.
struct Stage {
  std::string device;
  DeviceSpec spec;
  AttentionProblem problem;
  double patience_seconds;  // with a trial: many times what an honest one takes
  std::map<std::string, Verdict> verdicts;

  static Stage emulator() {
    // Rows that TMA cannot copy: every candidate is of family sm80, whose template misbehaves.
    Stage stage{"emulator", find_device("h200"), parse_problem("forward bf16 b1 hq2 sq70 d16 align2"), 4,
                common_verdicts()};
    stage.verdicts["faults"] = {Status::launch_failed, "st_global_f32 writes 4 bytes of global memory at 0x0"};
    stage.verdicts["deadlocks"] = {Status::launch_failed, "lane 0 waits in bar_sync"};
    return stage;
  }
  // Enough tiles that none of the candidates splits the keys: kernels that write partial results have no O to misbehave
  // with.
  static Stage gpu(const char* problem = "forward bf16 b2 hq40 sq300 d64 align2") {
    Stage stage{"cuda:0", open_cuda_device(0)->spec(), parse_problem(problem), 15, common_verdicts()};
    stage.verdicts["faults"] = {Status::launch_failed, "ILLEGAL_ADDRESS"};
    return stage;
  }

  static std::map<std::string, Verdict> common_verdicts() {
    return {{"honest", {Status::ok, ""}},
            {"hangs", {Status::timed_out, "killed"}},
            {"faults", {Status::launch_failed, ""}},
            {"wrong", {Status::wrong_result, "o: "}},
            {"out_of_bounds", {Status::wrong_result, "beyond the last element of lse"}},
            {"writes_inputs", {Status::wrong_result, "inputs: the kernel wrote to its inputs"}},
            {"leaves_gaps", {Status::wrong_result, "nan"}},
            {"accumulates", {Status::wrong_result, "batch 0, head 0, row 0, column 0 is"}},
            {"does_not_compile", {Status::compile_failed, "this candidate does not compile"}}};
  }

  std::string default_name() const { return hostile_name(problem, default_config(problem, spec)); }
};

// Sweeps over hostile candidates, in a folder of their own: nothing that they leave reaches anybody's cache.
class HostileSweeps {
 public:
  explicit HostileSweeps(const Stage& stage) : stage_(stage) {
    options_.device = stage.device;
    options_.spec = stage.spec;
    options_.command = sibling_program("attune");
    options_.budget_seconds = 600;
    options_.compile_workers = 2;
    options_.trial_timeout_seconds = stage.patience_seconds;
    options_.trial.sample_seconds = 0.01;
    options_.trial.spill_allowance_bytes = 1 << 20;  // what an honest kernel spills is no matter here
    fs::create_directories(folder_ / "cache");
    fs::create_directories(folder_ / "tmp");
  }

  SweepOptions& options() { return options_; }

  // Templates and a database of its own for each name; every row is stored.
  SweepResult run(const std::string& name, const BehaviourTable& table, int max_candidates,
                  const std::function<void(const SweepProgress&)>& on_progress = nullptr) {
    const fs::path templates = folder_ / name;
    if (!fs::exists(templates)) write_hostile_templates(templates, table);
    const ScopedVariable dir("ATTUNE_TEMPLATE_DIR", templates), cache("ATTUNE_CACHE_DIR", folder_ / "cache"),
        temporary("TMPDIR", folder_ / "tmp");
    LeftBehind left_behind;
    TuningDatabase database(database_path(name));
    options_.max_candidates = max_candidates;
    SweepResult result = sweep(stage_.problem, options_, database, on_progress);
    left_behind_ = left_behind.processes();
    CHECK(result.notes.empty());
    check_stored(result, database);
    return result;
  }

  // What still ran after the last sweep.
  const std::vector<std::string>& left_behind() const { return left_behind_; }

  fs::path database_path(const std::string& name) const { return folder_ / (name + ".db"); }

 private:
  void check_stored(const SweepResult& result, const TuningDatabase& database) const {
    const auto stored = database.find_all(stage_.problem, stage_.spec.name, stage_.spec.sm_count);
    for (const Measurement& row : result.rows) {
      const bool found = std::any_of(stored.begin(), stored.end(), [&](const Measurement& other) {
        return other.config == row.config && other.status == row.status && other.reason == row.reason;
      });
      INFO(canonical_text(row.config));
      CHECK(found);
    }
  }

  const Stage& stage_;
  SweepOptions options_;
  TemporaryFolder folder_;
  std::vector<std::string> left_behind_;
};

void check_row(const Stage& stage, const Measurement& row, const std::string& behaviour) {
  INFO(behaviour << " " << canonical_text(row.config) << ": " << to_string(row.status) << ", " << row.reason);
  const Verdict& verdict = stage.verdicts.at(behaviour);
  CHECK(row.status == verdict.status);
  CHECK_THAT(row.reason, ContainsSubstring(verdict.reason));
  if (verdict.status != Status::ok) CHECK(row.median_us == 0);
}

// One sweep that meets them all, honest ones before, among and after them.
void meet_all(const Stage& stage, const std::vector<std::string>& cast) {
  HostileSweeps sweeps(stage);
  const int count = static_cast<int>(cast.size());
  REQUIRE(cast.front() == "honest");

  // Where nothing compiles but the default config, a sweep shows which configs it would try, and in which order.
  const SweepResult listing =
      sweeps.run("listing", {{stage.default_name(), "honest"}, {"", "does_not_compile"}}, count);
  CHECK(sweeps.left_behind() == std::vector<std::string>{});
  REQUIRE(listing.rows.size() == cast.size());
  BehaviourTable table;
  auto next = cast.begin() + 1;
  for (const Measurement& row : listing.rows) {
    const std::string name = hostile_name(stage.problem, row.config);
    const bool is_default = name == stage.default_name();
    check_row(stage, row, is_default ? "honest" : "does_not_compile");
    REQUIRE((is_default || next != cast.end()));
    table.emplace_back(name, is_default ? cast.front() : *next++);
  }
  REQUIRE(next == cast.end());
  REQUIRE(listing.best);
  REQUIRE(hostile_name(stage.problem, listing.best->config) == stage.default_name());

  const std::map<std::string, std::string> behaviours(table.begin(), table.end());
  const auto behaviour_of = [&](const KernelConfig& config) {
    const auto found = behaviours.find(hostile_name(stage.problem, config));
    return found == behaviours.end() ? std::string("honest") : found->second;
  };
  const SweepResult result = sweeps.run("all", table, count);
  CHECK(sweeps.left_behind() == std::vector<std::string>{});
  std::multiset<std::string> met;
  for (const Measurement& row : result.rows) {
    check_row(stage, row, behaviour_of(row.config));
    met.insert(behaviour_of(row.config));
  }
  CHECK(met == std::multiset<std::string>(cast.begin(), cast.end()));
  REQUIRE(result.best);
  CHECK(behaviour_of(result.best->config) == "honest");
  REQUIRE(result.default_measurement);
  CHECK(result.default_measurement->status == Status::ok);
  const TuningDatabase database(sweeps.database_path("all"));
  const auto best = database.best(stage.problem, stage.spec.name, stage.spec.sm_count);
  REQUIRE(best);
  CHECK(best->config == result.best->config);

  // Nobody hangs twice.
  std::vector<SweepProgress> again;
  sweeps.run("all", table, count, [&](const SweepProgress& progress) { again.push_back(progress); });
  std::set<std::string> known;
  for (const Measurement& row : result.rows) known.insert(canonical_text(row.config));
  std::size_t reused = 0;
  for (const SweepProgress& progress : again) {
    if (!known.contains(canonical_text(progress.last.config))) continue;
    ++reused;
    CHECK(progress.reused);
    check_row(stage, progress.last, behaviour_of(progress.last.config));
  }
  CHECK(reused >= cast.size() / 2);
}

// A compiler that would take minutes, and gigabytes in the end, is stopped.
void stop_compilers(const Stage& stage) {
  HostileSweeps sweeps(stage);
  const BehaviourTable table = {{stage.default_name(), "honest"}, {"", "compiles_for_ever"}};
  // The default config has its row, and takes no part in the race against time.
  REQUIRE(sweeps.run("compilers", table, 1).rows.front().status == Status::ok);
  sweeps.options().compile_timeout_seconds = 2;
  const auto begin = std::chrono::steady_clock::now();
  const SweepResult result = sweeps.run("compilers", table, 3);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  CHECK(sweeps.left_behind() == std::vector<std::string>{});
  REQUIRE(result.rows.size() == 3);
  CHECK(result.reused == 1);
  for (std::size_t i = 1; i < 3; ++i) {
    INFO(result.rows[i].reason);
    CHECK(result.rows[i].status == Status::compile_timed_out);
    CHECK_THAT(result.rows[i].reason, ContainsSubstring("2 s"));
  }
  REQUIRE(result.best);
  CHECK(result.best->config == result.rows.front().config);
}

// Terabytes: more than any device of today, or the host of an emulated one, has.
AttentionProblem too_large() { return parse_problem("forward bf16 b64 hq64 sq1048576 d128"); }

}  // namespace

TEST_CASE("a sweep survives candidates that misbehave, and says what each did", "[emulator]") {
  meet_all(Stage::emulator(), {"honest", "hangs", "deadlocks", "faults", "wrong", "out_of_bounds", "writes_inputs",
                               "leaves_gaps", "accumulates", "does_not_compile", "honest"});
}

TEST_CASE("a sweep survives candidates that misbehave on a GPU, and says what each did", "[gpu]") {
  meet_all(Stage::gpu(), {"honest", "hangs", "honest", "faults", "wrong", "out_of_bounds", "writes_inputs",
                          "leaves_gaps", "accumulates", "does_not_compile", "honest"});
}

TEST_CASE("a sweep survives candidates that misbehave where O is compared on the GPU", "[gpu]") {
  const Stage stage = Stage::gpu("forward bf16 b1 hq40 sq2048 d64 align2");
  REQUIRE(count_flops(stage.problem) > kCpuOracleFlops);
  meet_all(stage, {"honest", "wrong", "out_of_bounds", "honest", "writes_inputs", "leaves_gaps", "accumulates",
                   "faults", "honest"});
}

TEST_CASE("compilers that find no end are stopped", "[emulator]") { stop_compilers(Stage::emulator()); }

TEST_CASE("compilers that find no end are stopped in a sweep on a GPU", "[gpu]") { stop_compilers(Stage::gpu()); }

TEST_CASE("NVRTC that finds no end is stopped, and the next compilation succeeds", "[nvrtc]") {
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq4 sq300 d64 align2");
  PrecompileOptions options;
  options.spec = find_device("h200");
  options.workers = 1;
  options.command = sibling_program("attune");
  const std::vector<PrecompileJob> space = precompile_jobs({problem}, options.spec, 3);
  const TemporaryFolder folder;
  write_hostile_templates(folder / "templates",
                          {{hostile_name(problem, space.at(0).config), "honest"}, {"", "compiles_for_ever"}});
  const ScopedVariable dir("ATTUNE_TEMPLATE_DIR", folder / "templates"), cache("ATTUNE_CACHE_DIR", folder / "cache");
  REQUIRE(precompile({space[0]}, options).front().status == Status::ok);

  options.timeout_seconds = 2;
  LeftBehind left_behind;
  const std::vector<PrecompileOutcome> outcomes = precompile({space[1], space[2], space[0]}, options);
  CHECK(left_behind.processes() == std::vector<std::string>{});
  for (const std::size_t hung : {0, 1}) {
    INFO(outcomes.at(hung).reason);
    CHECK(outcomes[hung].status == Status::compile_timed_out);
  }
  CHECK(outcomes.at(2).status == Status::ok);
  CHECK(outcomes[2].from_cache);
}

TEST_CASE("a problem that is too large is known before memory is taken", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const Measurement row = TrialBench(device, too_large(), 1).run(default_config(too_large(), device->spec()));
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(row.status == Status::out_of_memory);
  CHECK_THAT(row.reason, ContainsSubstring("MiB are free"));
  constexpr long kKibibytes = 64 << 10;
  CHECK(after.ru_maxrss - before.ru_maxrss < kKibibytes);
}

TEST_CASE("a problem that is too large for a GPU is a row, before memory is taken", "[gpu]") {
  Stage stage = Stage::gpu();
  stage.problem = too_large();
  HostileSweeps sweeps(stage);
  const auto begin = std::chrono::steady_clock::now();
  const SweepResult result = sweeps.run("honest", {}, 2);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  REQUIRE(result.rows.size() == 2);
  for (const Measurement& row : result.rows) {
    CHECK(row.status == Status::out_of_memory);
    CHECK_THAT(row.reason, ContainsSubstring("MiB are free"));
  }
  CHECK_FALSE(result.best);
}

TEST_CASE("hostile templates are what NVRTC compiles, but for the one that does not", "[nvrtc]") {
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq4 sq300 d64 align2");
  const DeviceSpec& h200 = find_device("h200");
  const KernelConfig config = default_config(problem, h200);
  std::set<std::string> images;
  for (const auto& [behaviour, verdict] : Stage::common_verdicts()) {
    INFO(behaviour);
    const TemplateSet templates(hostile_templates({{hostile_name(problem, config), behaviour}}));
    const KernelPlan plan = generate(problem, config, h200, templates);
    if (verdict.status == Status::compile_failed) {
      CHECK_THROWS_WITH(compile_with_nvrtc(plan.launches.front()),
                        ContainsSubstring("hostile/does_not_compile") && ContainsSubstring(verdict.reason));
      continue;
    }
    std::string image;
    REQUIRE_NOTHROW(image = compile_with_nvrtc(plan.launches.front()).image);
    CHECK(images.insert(image).second);  // each is another program, or the table has no effect
  }
}
