#pragma once

#include <cstdint>
#include <memory>

#include "attune/attention.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/measurement.h"

namespace attune {

struct TrialOptions {
  std::uint64_t seed = 1;
  double sample_seconds = 0.1;  ///< time spent on timing samples
  int min_samples = 5;
  bool check = true;            ///< against the oracle before timing
};

/// Inputs, outputs and reference of one problem on a device, made once and shared by the trials of its configs.
class TrialBench {
 public:
  TrialBench(std::shared_ptr<Device> device, const AttentionProblem& problem, std::uint64_t seed);
  ~TrialBench();

  /// Compile, poison the outputs (guard bands too), run once, compare with the oracle, check that inputs are untouched, then time (where the
  /// device can): cold L2 by reading a large buffer, clocks recorded. Expected failures are the status; it throws only for what poisons
  /// the process (a sticky CUDA error).
  Measurement run(const KernelConfig& config, const TrialOptions& options);

  /// A checked run without timing, for `check`: errors of each output.
  ForwardErrors check(const PreparedAttention& prepared);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
