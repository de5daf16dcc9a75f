#pragma once

#include <vector>

#include "generator/problem/attention_problem.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/sweep/shard.h"
#include "tuner/trial/precompile.h"

namespace attune::cli {

/// What `compile` and `tune --compile-only` are asked for.
struct CompileJobs {
  std::vector<AttentionProblem> problems;
  Shard shard;              ///< of the kernels
  int max_candidates = 10;  ///< of each problem; 0: all
  int workers = 0;          ///< 0: all cores
  double timeout_seconds = 60;
};

/// Throws Error(invalid_argument) for what --workers or --compile-timeout cannot be.
void require_limits(int workers, double timeout_seconds);

/// precompile() with progress on stderr.
std::vector<PrecompileOutcome> precompile_and_say(const std::vector<PrecompileJob>& jobs, const PrecompileOptions& how);

/// Fills the cubin cache, with progress on stderr and a report on stdout. Throws Error.
ExitStatus compile_kernels(const CompileJobs& jobs, const ChosenDevice& device, const OutputOptions& output);

}  // namespace attune::cli
