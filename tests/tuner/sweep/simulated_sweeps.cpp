// Whole sweeps over a worker whose kernels take known times with noise: what is elected, however a sweep ends.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <random>
#include <stdexcept>

#include "generator/config/config_space.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/sweep/sweep.h"

using namespace attune;
using attune::test::TemporaryFolder;
using attune::test::write_script;
namespace fs = std::filesystem;

namespace simulated_sweeps_test {
namespace {

const char* const kProblem = "forward bf16 b1 hq8 sq1024 d256";

// Answers a sweep's requests: a trial takes what the list of times says, times noise of its own; the rounds of a race
// share theirs but for 1 %. With the word "crash" it dies of each race.
const char* const kWorker = R"py(
import json, math, random, sys
times = dict(line.rstrip("\n").split("\t") for line in open(sys.argv[1]))
noise, seed, compiler, crash = float(sys.argv[2]), sys.argv[3], sys.argv[4], "crash" in sys.argv
source = random.Random(seed)
def scattered(config, part): return float(times[config]) * math.exp(source.gauss(0, part))
for line in sys.stdin:
    asked = json.loads(line)
    op, config = asked["op"], asked.get("config")
    if op == "identify":
        said = {"device_name": "NVIDIA H200", "sm_count": 132, "compiler": compiler, "driver": "D1",
                "can_time": True}
    elif op == "prepare": said = {"prepared": True}
    elif op == "compile": said = {"status": "ok", "reason": ""}
    elif op == "trial":
        us = scattered(config, noise)
        said = {"measurement": {"problem": asked["problem"], "config": config, "samples_us": [us], "median_us": us,
                                "p20_us": us, "p80_us": us, "rigor": "measure"}}
    elif crash: sys.exit(3)
    else:
        rounds = [math.exp(source.gauss(0, 0.03)) for _ in range(asked["options"]["min_rounds"])]
        said = {"race": {"samples_us": [[scattered(c, 0.01) * r for r in rounds] for c in asked["configs"]],
                         "clocks_mhz": [[1980 for _ in rounds] for _ in asked["configs"]], "protocol": "in turns"}}
        # The same with wide scores: their race ranks as one with the problem's own would.
        if asked["options"]["wide"]: said["race"]["wide_samples_us"] = said["race"]["samples_us"]
    print(json.dumps(said), flush=True)
)py";

class SimulatedGpu {
 public:
  explicit SimulatedGpu(unsigned seed) : seed_(seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform;
    const DeviceSpec& h200 = find_device("h200");
    const KernelConfig standard = default_config(parse_problem(kProblem), h200);
    std::ofstream list(folder_ / "times");
    for (const Candidate& candidate : config_space(parse_problem(kProblem), h200, SpaceExtent::reduced)) {
      // Each problem's default takes 100 us, some configs are up to 4 % faster.
      const double us = candidate.config == standard ? 100 : 96 + 30 * uniform(random);
      times_[canonical_text(candidate.config)] = us;
      list << canonical_text(candidate.config) << '\t' << us << '\n';
    }
    std::ofstream(folder_ / "worker.py") << kWorker;
  }

  fs::path database() const { return folder_ / "tuning.db"; }
  double time_of(const KernelConfig& config) const { return times_.at(canonical_text(config)); }

  SweepOptions options(const std::string& compiler, bool crash) const {
    SweepOptions options;
    options.device = "cuda:0";
    options.spec = find_device("h200");
    options.extent = SpaceExtent::reduced;
    options.max_candidates = 25;
    options.compile_workers = 0;
    options.trial_timeout_seconds = 60;
    options.command =
        write_script(folder_ / "attune", fmt::format("exec python3 {0}/worker.py {0}/times 0.05 {1}{2} {2} {3}",
                                                     folder_.path().string(), seed_, compiler, crash ? "crash" : ""));
    return options;
  }

 private:
  const TemporaryFolder folder_;
  const unsigned seed_;
  std::map<std::string, double> times_;
};

enum class End { decided, race_crashes, interrupted, killed };

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

}  // namespace

// A config 1 % slower than the default passes a race with a probability below 1e-4: its interval over at least 20
// paired rounds of 1.4 % would have to lie wholly on the other side. What no race decided is the default, or what an
// earlier race elected. So none of these sweeps may elect anything slower by more than the margin of 0.5 % and that.
TEST_CASE("simulated sweeps elect nothing slower than the default, however they end", "[nogpu]") {
  int faster = 0, sweeps = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const SimulatedGpu gpu(seed);
    const AttentionProblem problem = parse_problem(kProblem);
    const KernelConfig standard = default_config(problem, find_device("h200"));
    // A first sweep, and one with another compiler, which tries all again.
    for (const unsigned which : {0u, 1u}) {
      const End end = static_cast<End>((seed + which * (1 + seed / 4)) % 4);
      INFO("seed " << seed << ", sweep " << which << ", end " << static_cast<int>(end));
      TuningDatabase database(gpu.database());
      std::atomic<bool> stop = false;
      SweepOptions options = gpu.options(which == 0 ? "C1" : "C2", end == End::race_crashes);
      options.stop = &stop;
      const auto before = database.best(problem, "NVIDIA H200", 132);
      std::optional<SweepResult> result;
      try {
        result = sweep(problem, options, database, [&](const SweepProgress& progress) {
          if (progress.done != static_cast<int>(5 + seed)) return;
          if (end == End::interrupted) stop = true;
          if (end == End::killed) throw Killed();
        });
      } catch (const Killed&) {
      }
      ++sweeps;
      REQUIRE(result.has_value() == (end != End::killed));
      const auto best = database.best(problem, "NVIDIA H200", 132);
      REQUIRE(best);
      if (result) CHECK(best->config == result->best->config);
      CHECK(gpu.time_of(best->config) <= 1.01 * gpu.time_of(standard));
      faster += gpu.time_of(best->config) < 0.995 * gpu.time_of(standard);
      if (end != End::decided) CHECK(best->config == (before ? before->config : standard));
    }
  }
  INFO(faster << " of " << sweeps << " elected something faster");
  CHECK(faster >= 6);  // those that a race decided
}

}  // namespace simulated_sweeps_test
