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
  ok, infeasible, compile_failed, compile_timed_out, spilled, serialized, launch_failed, crashed, wrong_result, timed_out,
  out_of_memory,
};
std::string_view to_string(MeasurementStatus status);
std::optional<MeasurementStatus> parse_measurement_status(std::string_view text);

/// How much was done to find a choice, in rising order (FFTW's words).
enum class Rigor { estimate, measure, patient, exhaustive };
std::string_view to_string(Rigor rigor);

/// One trial of one config on one device: a row of the database. `estimate` rows come from the cost model: no samples, no proof on a GPU.
struct Measurement {
  AttentionProblem problem;
  KernelConfig config;
  // identity of the device
  std::string device;          ///< driver's name of the model, "NVIDIA H200"
  int sm_count = 0;
  // the outcome
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;          ///< a sentence, if the status is not ok
  Rigor rigor = Rigor::measure;
  std::vector<double> samples_us;   ///< kernel times in microseconds, in order
  double median_us = 0, p20_us = 0, p80_us = 0;
  double predicted_us = 0;          ///< the cost model's
  int sm_clock_mhz = 0;             ///< median while sampling; 0 if unknown
  double error_o = 0, error_lse = 0;  ///< relative error of O; max abs error of LSE
  int registers = 0, spill_bytes = 0;
  std::size_t shared_bytes = 0;
  double compile_ms = 0;
  // provenance
  std::string templates_hash, compiler, driver, protocol, attune_version;
  std::string created_at;           ///< UTC, ISO 8601

  double tflops() const;            ///< counted FLOPs over the median; 0 without samples
  void summarize();                 ///< median, p20, p80 from the samples
};

}  // namespace attune
