#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/attention_problem.h"
#include "generator/kernel_config.h"

namespace attune {

enum class MeasurementStatus {
  ok,
  infeasible,
  compile_failed,
  compile_timed_out,
  spilled,
  serialized,
  launch_failed,
  crashed,
  wrong_result,
  timed_out,
  out_of_memory,
};
std::string_view to_string(MeasurementStatus status);
std::optional<MeasurementStatus> parse_measurement_status(std::string_view text);

/// How much was done to find a choice, in rising order (FFTW's words).
enum class Rigor { estimate, measure, patient, exhaustive };
std::string_view to_string(Rigor rigor);
std::optional<Rigor> parse_rigor(std::string_view text);

/// One trial of one config on one device: a row of the database. `estimate` rows come from the cost model: no samples,
/// no proof on a GPU.
struct Measurement {
  AttentionProblem problem;
  KernelConfig config;
  // identity of the device
  std::string device;  ///< driver's name of the model, "NVIDIA H200"
  int sm_count = 0;
  // the outcome
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;  ///< a sentence, if the status is not ok
  Rigor rigor = Rigor::measure;
  std::string race;                ///< UTC time at which the final race began that it comes from; empty: a probe
  int place = 0;                   ///< in that race: 1 is its winner, then 2, 3 ...; 0 if there was none
  std::vector<double> samples_us;  ///< kernel times in microseconds, in order
  double median_us = 0, p20_us = 0, p80_us = 0;
  double predicted_us = 0;            ///< the cost model's
  std::vector<int> clocks_mhz;        ///< SM clock of each sample, 0 where unknown; empty if none was recorded
  int sm_clock_mhz = 0;               ///< their median; 0 if unknown
  double error_o = 0, error_lse = 0;  ///< relative error of O, backward the largest of dQ, dK and dV; max abs
                                      ///< error of LSE; NaN where an output held NaN
  int registers = 0, spill_bytes = 0;
  std::size_t shared_bytes = 0;
  double compile_ms = 0;
  // provenance
  std::string templates_hash, compiler, driver, protocol, attune_version;
  std::string created_at;  ///< UTC, ISO 8601

  double tflops() const;  ///< counted FLOPs over the median; 0 without samples
  void summarize();       ///< median, p20, p80 and the clock's median from the samples
  /// What rows are ranked by: the median of the samples, for an estimate the prediction; 0 if there is neither.
  double ranking_us() const;
};

/// Whether `a` is to be chosen before `b` (both ok): the higher rigor; then one that was raced before one that was not;
/// the newer race, and in a race the place in it, which may be decided by a fixed order where times tie; then the
/// smaller ranking_us, then the canonical config text, so that two runs agree. A row without a ranking time comes last.
bool ranks_before(const Measurement& a, const Measurement& b);

/// The quantile of an unsorted sample, interpolated linearly between order statistics; 0 if it is empty.
double quantile(std::vector<double> values, double probability);

/// UTC now with microseconds: "2025-01-31T12:00:00.123456Z".
std::string utc_now();

/// The version of Attune that writes rows: "0.1.0".
std::string_view attune_version();

}  // namespace attune
