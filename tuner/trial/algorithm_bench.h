#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/ladder/attention_algorithm.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/database/measurement.h"

namespace attune {

struct AlgorithmBenchOptions {
  std::uint64_t seed = 1;  ///< of the random normal inputs
  double seconds = 1;      ///< of GPU time for the samples of all algorithms together
  bool time = true;        ///< where the device can
  int cuda_ordinal = 0;    ///< of the device, for its clock
};

/// One algorithm on one problem.
struct AlgorithmResult {
  AttentionAlgorithm algorithm = AttentionAlgorithm::fa2;
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;  ///< if it is not ok
  KernelPlan plan;
  std::vector<MemoryTraffic> traffic;  ///< counted, of each launch
  std::vector<OutputErrors> outputs;   ///< against the oracle: o, lse; what else is wrong as TrialBench names it
  std::vector<double> samples_us;      ///< of all launches of the plan together; empty if not timed
  int sm_clock_mhz = 0;                ///< median while they were taken, 0 if unknown
};

/// Checks each algorithm and times those that are right alternately, as TrialBench checks and races configs. Expected
/// failures (no memory, a wrong result) are statuses; throws Error as TrialBench::run() does.
std::vector<AlgorithmResult> bench_algorithms(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                              const std::vector<AttentionAlgorithm>& algorithms,
                                              const AlgorithmBenchOptions& options = {});

}  // namespace attune
