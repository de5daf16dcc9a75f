#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "generator/error.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/validators.h"
#include "tuner/cli/verb.h"
#include "tuner/precompile.h"
#include "tuner/shapes_file.h"

namespace attune::cli {
namespace {

struct CompileOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  std::string shapes, shard;
  int max_candidates = 10;
  int workers = 0;
  double timeout = 60;
};

std::vector<AttentionProblem> problems_of(const CompileOptions& options) {
  if (options.shapes.empty()) return {options.problem.problem()};
  if (options.problem.any_given()) {
    throw Error(ErrorCode::invalid_argument,
                "--shapes already names the problems: leave out the problem flags, or put them into the file");
  }
  return read_shapes(options.shapes);
}

/// Where the cubins go. A cache that cannot be written would be used without storing: here that is an error.
std::string writable_cache() {
  const std::filesystem::path folder = CubinCache::default_folder();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) != 0) error = std::error_code(errno, std::generic_category());
  if (error) {
    throw Error(ErrorCode::io, fmt::format("cubins cannot be stored in {}: {}. ATTUNE_CACHE_DIR names another folder",
                                           folder.string(), error.message()));
  }
  return folder.string();
}

std::string name_of(const PrecompileJob& job) {
  return fmt::format("{} for \"{}\"", canonical_text(job.config), canonical_text(job.problem));
}

/// On a terminal one line that is rewritten, elsewhere a line for each kernel; always on stderr.
class ProgressLine {
 public:
  explicit ProgressLine(const std::vector<PrecompileJob>& jobs) : jobs_(jobs) {}
  ~ProgressLine() {
    if (terminal_ && done_ > 0) fmt::print(stderr, "\n");
  }
  void operator()(std::size_t job, const PrecompileOutcome& outcome) {
    ++done_;
    failed_ += outcome.status != MeasurementStatus::ok;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = seconds / static_cast<double>(done_) * static_cast<double>(jobs_.size() - done_);
    const std::string count =
        fmt::format("{}/{}  {:.0f} s, about {:.0f} s left, {} failed", done_, jobs_.size(), seconds, left, failed_);
    if (terminal_) {
      fmt::print(stderr, "\r\x1b[K{}", count);
      std::fflush(stderr);
    } else {
      fmt::print(stderr, "{}  {}{}\n", count, name_of(jobs_[job]),
                 outcome.status != MeasurementStatus::ok ? fmt::format("  {}", to_string(outcome.status))
                 : outcome.from_cache                    ? "  from the cache"
                                                         : "");
    }
  }

 private:
  const std::vector<PrecompileJob>& jobs_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::size_t done_ = 0, failed_ = 0;
};

int run(const CompileOptions& options) {
  if (!std::isfinite(options.timeout) || options.timeout <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--compile-timeout {}: must be a positive number of seconds", options.timeout));
  }
  if (options.max_candidates < 0 || options.workers < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: must be at least 1, or 0 for {}",
                            options.workers < 0 ? fmt::format("--workers {}", options.workers)
                                                : fmt::format("--max-candidates {}", options.max_candidates),
                            options.workers < 0 ? "all cores" : "no limit"));
  }
  const Shard shard = options.shard.empty() ? Shard() : parse_shard(options.shard);
  const std::vector<AttentionProblem> problems = problems_of(options);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(fmt::format("no --target given: compiling for {}", chosen.spec.name));
  const std::string compiler = nvrtc_identity(), cache = writable_cache();
  std::size_t considered = 0;
  const std::vector<PrecompileJob> all = precompile_jobs(problems, chosen.spec, options.max_candidates, &considered);
  const std::vector<PrecompileJob> jobs = select(all, shard);

  PrecompileOptions how;
  how.spec = chosen.spec;
  how.workers = options.workers;
  how.timeout_seconds = options.timeout;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<PrecompileOutcome> outcomes;
  {
    ProgressLine progress(jobs);
    outcomes =
        precompile(jobs, how, [&](std::size_t job, const PrecompileOutcome& outcome) { progress(job, outcome); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::size_t compiled = 0, from_cache = 0;
  Json failures = Json::array();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (outcomes[i].status != MeasurementStatus::ok) {
      failures.push_back({{"problem", canonical_text(jobs[i].problem)},
                          {"config", canonical_text(jobs[i].config)},
                          {"status", to_string(outcomes[i].status)},
                          {"reason", outcomes[i].reason}});
    } else {
      ++(outcomes[i].from_cache ? from_cache : compiled);
    }
  }
  const std::size_t failed = failures.size();
  if (options.output.json) {
    print_json({{"status", failed == 0 ? "ok" : "some_failed"},
                {"target", chosen.spec.key},
                {"problems", problems.size()},
                {"candidates", considered},
                {"kernels", all.size()},
                {"kernels_of_shard", jobs.size()},
                {"shard", fmt::format("{}/{}", shard.index, shard.count)},
                {"compiled", compiled},
                {"from_cache", from_cache},
                {"failed", failed},
                {"failures", failures},
                {"seconds", seconds},
                {"compiler", compiler},
                {"cache", cache}});
  } else {
    print_field("target", fmt::format("{} ({})", chosen.spec.key, chosen.spec.name));
    print_field("problems",
                fmt::format("{}, with {} candidates of {} different kernels", problems.size(), considered, all.size()));
    if (shard.count > 1) print_field("shard", fmt::format("{}/{}: {} kernels", shard.index, shard.count, jobs.size()));
    print_field("compiled", fmt::format("{} in {:.1f} s, {} more were in the cache", compiled, seconds, from_cache));
    for (const Json& failure : failures) {
      print_field("failed", fmt::format("{} for \"{}\": {}: {}", failure["config"].get<std::string>(),
                                        failure["problem"].get<std::string>(), failure["status"].get<std::string>(),
                                        failure["reason"].get<std::string>()));
    }
    print_field("cache", cache);
  }
  return failed == 0 ? kOk : kCheckFailed;
}

}  // namespace

Verb make_compile(CLI::App& command) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* verb =
      add_verb(command, "compile",
               "fill the cubin cache with a problem's candidates, or those of a list, on all cores; needs no GPU. Exit "
               "status 1 if "
               "a kernel failed",
               "attune compile --target h200 --heads 16 --seq 4096 --head-dim 128 --causal --max-candidates 20\n"
               "attune compile --target a100 --shapes shapes.csv --shard 1/4 --json");
  verb->add_option("--shapes", options->shapes,
                   "FILE.json (array of canonical texts, or of objects with the flags' names) or FILE.csv (header of "
                   "the flags' names), in place of the problem flags")
      ->check(not_empty());
  verb->add_option("--shard", options->shard, "I/N: every N-th kernel from the I-th on, for job arrays")
      ->check(not_empty());
  verb->add_option("--max-candidates", options->max_candidates,
                   "of each problem, the default included, in the cost model's order (default 10, 0: all)")
      ->transform(whole_number<int>());
  verb->add_option("--workers", options->workers, "processes (default 0: as many as there are cores)")
      ->transform(whole_number<int>());
  verb->add_option("--compile-timeout", options->timeout, "seconds after which a compilation is ended (default 60)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
