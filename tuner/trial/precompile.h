#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"
#include "tuner/database/measurement.h"

namespace attune {

/// A kernel to be compiled: the config, and one of the problems that share its source.
struct PrecompileJob {
  AttentionProblem problem;
  KernelConfig config;
};

/// What a sweep of these problems tries first if it knows nothing of them yet: of each problem the default config, the
/// published tiles, then the cost model's order as a Searcher takes it, at most `max_candidates` (0: no limit). Kernels
/// of the same source are listed once. The order depends on the arguments alone. `considered`: how many candidates
/// there were before.
std::vector<PrecompileJob> precompile_jobs(const std::vector<AttentionProblem>& problems, const DeviceSpec& device,
                                           int max_candidates, std::size_t* considered = nullptr);

struct PrecompileOptions {
  DeviceSpec spec;
  int workers = 0;              ///< processes; 0: as many as there are cores
  double timeout_seconds = 60;  ///< of one compilation: compile_timed_out
  std::string command;          ///< the attune executable, run as `command worker`; empty: find_attune_command()
};

struct PrecompileOutcome {
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;  ///< if the status is not ok
  bool from_cache = false;
  bool stored = false;  ///< all its kernels are in the cache now
};

/// Fills the cubin cache on disk, without a GPU, in worker processes: a compiler that hangs or crashes costs its own
/// job. Returns one outcome per job. `on_done` is called as jobs end, one call at a time. Throws Error in a worker's
/// own words if the environment, not a config, is at fault (no NVRTC); jobs under way are ended then.
std::vector<PrecompileOutcome> precompile(
    const std::vector<PrecompileJob>& jobs, const PrecompileOptions& options,
    const std::function<void(std::size_t job, const PrecompileOutcome&)>& on_done = nullptr);

}  // namespace attune
