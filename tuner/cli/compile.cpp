#include "tuner/cli/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "generator/error.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/shapes_options.h"
#include "tuner/cli/verb.h"
#include "tuner/database/file_system.h"
#include "tuner/trial/precompile.h"

namespace attune::cli {
namespace {

struct CompileOptions {
  OutputOptions output;
  ProblemOptions problem;
  ShapesOptions shapes;
  DeviceOptions device;
  CompileJobs jobs;
};

/// Where the cubins go. A cache that cannot be written would be used without storing: here that is an error.
std::string writable_cache() {
  const std::filesystem::path path = CubinCache::default_folder();
  const PrivateFolder folder(path);
  if (!folder.writable()) {
    throw Error(ErrorCode::io,
                fmt::format("cubins cannot be stored: {}. ATTUNE_CACHE_DIR names another folder", folder.complaint()));
  }
  return path.string();
}

std::string name_of(const PrecompileJob& job) {
  return fmt::format("{} for \"{}\"", canonical_text(job.config), canonical_text(job.problem));
}

/// On a terminal one line that is rewritten, elsewhere a line for each kernel; always on stderr.
class ProgressLine {
 public:
  explicit ProgressLine(const std::vector<PrecompileJob>& jobs) : jobs_(jobs) {}
  ~ProgressLine() {
    if (terminal_ && done_ > 0) end_status();
  }
  void operator()(std::size_t job, const PrecompileOutcome& outcome) {
    ++done_;
    failed_ += outcome.status != MeasurementStatus::ok;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = seconds / static_cast<double>(done_) * static_cast<double>(jobs_.size() - done_);
    const std::string count =
        fmt::format("{}/{}  {:.0f} s, about {:.0f} s left, {} failed", done_, jobs_.size(), seconds, left, failed_);
    if (terminal_) {
      print_status(count);
    } else {
      print_message(fmt::format("{}  {}{}", count, name_of(jobs_[job]),
                                outcome.status != MeasurementStatus::ok ? fmt::format("  {}", to_string(outcome.status))
                                : outcome.from_cache                    ? "  from the cache"
                                : outcome.stored                        ? ""
                                                                        : "  not stored"));
    }
  }

 private:
  const std::vector<PrecompileJob>& jobs_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::size_t done_ = 0, failed_ = 0;
};

int run(const CompileOptions& options) {
  CompileJobs jobs = options.jobs;
  jobs.shard = options.shapes.shard();
  jobs.problems = options.shapes.problems(options.problem);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(fmt::format("no --target given: compiling for {}", chosen.spec.name));
  return compile_kernels(jobs, chosen, options.output);
}

}  // namespace

void require_limits(int workers, double timeout_seconds) {
  if (!std::isfinite(timeout_seconds) || timeout_seconds <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--compile-timeout {}: must be a positive number of seconds", timeout_seconds));
  }
  if (workers < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--workers {}: must be at least 1, or 0 for all cores", workers));
}

std::vector<PrecompileOutcome> precompile_and_say(const std::vector<PrecompileJob>& jobs,
                                                  const PrecompileOptions& how) {
  ProgressLine progress(jobs);
  return precompile(jobs, how, [&](std::size_t job, const PrecompileOutcome& outcome) { progress(job, outcome); });
}

ExitStatus compile_kernels(const CompileJobs& asked, const ChosenDevice& chosen, const OutputOptions& output) {
  require_limits(asked.workers, asked.timeout_seconds);
  if (asked.max_candidates < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--max-candidates {}: must be at least 1, or 0 for no limit", asked.max_candidates));
  }
  const std::string compiler = nvrtc_identity(), cache = writable_cache();
  std::size_t considered = 0;
  const std::vector<PrecompileJob> all =
      precompile_jobs(asked.problems, chosen.spec, asked.max_candidates, &considered);
  const std::vector<PrecompileJob> jobs = select(all, asked.shard);

  PrecompileOptions how;
  how.spec = chosen.spec;
  how.workers = asked.workers;
  how.timeout_seconds = asked.timeout_seconds;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<PrecompileOutcome> outcomes = precompile_and_say(jobs, how);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::size_t compiled = 0, from_cache = 0, stored = 0;
  Json failures = Json::array();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (outcomes[i].status != MeasurementStatus::ok) {
      failures.push_back({{"problem", canonical_text(jobs[i].problem)},
                          {"config", canonical_text(jobs[i].config)},
                          {"status", to_string(outcomes[i].status)},
                          {"reason", outcomes[i].reason}});
    } else {
      ++(outcomes[i].from_cache ? from_cache : compiled);
      stored += !outcomes[i].from_cache && outcomes[i].stored;
    }
  }
  const std::size_t failed = failures.size(), not_stored = compiled - stored;
  if (output.json) {
    print_json({{"status", not_stored > 0 ? "not_stored"
                           : failed == 0  ? "ok"
                                          : "some_failed"},
                {"target", chosen.spec.key},
                {"problems", asked.problems.size()},
                {"candidates", considered},
                {"kernels", all.size()},
                {"kernels_of_shard", jobs.size()},
                {"shard", fmt::format("{}/{}", asked.shard.index, asked.shard.count)},
                {"compiled", compiled},
                {"stored", stored},
                {"from_cache", from_cache},
                {"failed", failed},
                {"failures", failures},
                {"seconds", seconds},
                {"compiler", compiler},
                {"cache", cache}});
  } else {
    print_field("target", fmt::format("{} ({})", chosen.spec.key, chosen.spec.name));
    print_field("problems", fmt::format("{}, with {} candidates of {} different kernels", asked.problems.size(),
                                        considered, all.size()));
    if (asked.shard.count > 1)
      print_field("shard", fmt::format("{}/{}: {} kernels", asked.shard.index, asked.shard.count, jobs.size()));
    print_field("compiled",
                fmt::format("{} in {:.1f} s{}, {} more were in the cache", compiled, seconds,
                            not_stored > 0 ? fmt::format(", of which {} are stored", stored) : "", from_cache));
    for (const Json& failure : failures) {
      print_field("failed", fmt::format("{} for \"{}\": {}: {}", failure["config"].get<std::string>(),
                                        failure["problem"].get<std::string>(), failure["status"].get<std::string>(),
                                        failure["reason"].get<std::string>()));
    }
    print_field("cache", cache);
  }
  if (not_stored > 0) {
    warn(
        fmt::format("{} of {} compiled kernels are not stored in {}: {}. Run the same command again then: what is "
                    "stored is not compiled a second time",
                    not_stored, compiled, cache,
                    is_full(cache) ? "the disk is full; free some space"
                                   : "the message above says why; mend that, or name another folder by "
                                     "ATTUNE_CACHE_DIR"));
    return kBadInput;
  }
  return failed == 0 ? kOk : kCheckFailed;
}

Verb make_compile(CommandLine& command) {
  auto options = std::make_shared<CompileOptions>();
  CommandLine* verb = add_verb(
      command, "compile",
      "compile the candidates of a problem, or of a list, into the cubin cache on all cores; this needs no GPU. The "
      "exit status is 1 if a kernel failed, and 2 if one could not be stored",
      "attune compile --target h200 --heads 16 --seq 4096 --head-dim 128 --causal --max-candidates 20\n"
      "attune compile --target a100 --shapes shapes.csv --shard 1/4 --json");
  options->shapes.add_to(*verb, "of equally many kernels");
  verb->add_option("--max-candidates", options->jobs.max_candidates,
                   "of each problem, the default included, in the cost model's order (default 10, 0: all)");
  verb->add_option("--workers", options->jobs.workers, "processes (default 0: as many as there are cores)");
  verb->add_option("--compile-timeout", options->jobs.timeout_seconds,
                   "seconds after which a compilation is ended (default 60)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
