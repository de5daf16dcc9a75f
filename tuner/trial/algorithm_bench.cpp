#include "tuner/trial/algorithm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tuner/trial/trial.h"

namespace attune {
namespace {

// Throws for expected failures.
std::shared_ptr<const PreparedAttention> check(TrialBench& bench, const AttentionProblem& problem,
                                               AlgorithmResult* result) {
  auto prepared = bench.prepare(result->algorithm);
  result->plan = prepared->plan;
  result->traffic = count_traffic(prepared->plan, result->algorithm, problem);
  result->outputs = bench.check(*prepared);
  for (const OutputErrors& output : result->outputs) {
    if (output.within) continue;
    result->status = MeasurementStatus::wrong_result;
    result->reason += fmt::format("{}{}: {}", result->reason.empty() ? "" : "; ", output.name, output.complaint);
  }
  return prepared;
}

int median_of(std::vector<int> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<AlgorithmResult> bench_algorithms(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                              const std::vector<AttentionAlgorithm>& algorithms,
                                              const AlgorithmBenchOptions& options) {
  TrialBench bench(device, problem, options.seed);
  std::vector<AlgorithmResult> results;
  std::vector<std::shared_ptr<const PreparedAttention>> right;
  std::vector<std::size_t> places;  // of those in the results
  for (const AttentionAlgorithm algorithm : algorithms) {
    AlgorithmResult& result = results.emplace_back();
    result.algorithm = algorithm;
    try {
      auto prepared = check(bench, problem, &result);
      if (result.status != MeasurementStatus::ok) continue;
      right.push_back(std::move(prepared));
      places.push_back(results.size() - 1);
    } catch (const Error& error) {
      const std::optional<MeasurementStatus> status = status_of(error);
      if (!status || error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::template_error) throw;
      if (error.code() == ErrorCode::driver && *status != MeasurementStatus::out_of_memory) throw;
      result.status = *status;
      result.reason = error.what();
    }
  }
  if (!options.time || !device->can_time() || right.empty()) return results;
  RaceTimes times = bench.race(right, {.seconds = options.seconds, .cuda_ordinal = options.cuda_ordinal});
  for (std::size_t i = 0; i < right.size(); ++i) {
    AlgorithmResult& result = results[places[i]];
    result.samples_us = std::move(times.samples_us[i]);
    result.sm_clock_mhz = median_of(std::move(times.clocks_mhz[i]));
    result.reason = times.complaint;
  }
  return results;
}

}  // namespace attune
