#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"
#include "runtime/system/node_gpu.h"
#include "tuner/database/utc_time.h"

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

/// How much wider the scores of a race's wide times are than those of the problem: the factor on its softmax scale. The
/// spread of scores is the standard deviation of softmax_scale * Q K^T. It is 1 for the random normal Q and K of trials
/// at the default scale, 2 to 10 in heads of trained models, and the speed of some forward kernels hangs on it. A power
/// of two, so that the wide scores are exactly those of the problem times it. Stored rows do not name the factor: it
/// never changes.
inline constexpr int kWideSpread = 8;

/// Whether a race times this problem with wide scores as well: forward ones, unless their scale is so large that the
/// wide one is no number. No backward kernel has a path that hangs on how widely scores spread, and the LSE that it
/// reads is that of the problem's own scale.
bool races_wide(const AttentionProblem& problem);

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
  /// UTC time at which the final race began that it comes from, stored as canonical_time(); empty: a probe. A race of
  /// one row is no comparison but an election: what stands until there is a race, or because it failed.
  std::string race;
  int place = 0;                   ///< in that race: 1 is its winner, then 2, 3 ...; 0 if there was none
  std::vector<double> samples_us;  ///< kernel times in microseconds, in order
  double median_us = 0, p20_us = 0, p80_us = 0;
  /// Times of the same rounds with scores kWideSpread times as wide, as many as samples_us; empty where none were
  /// taken: of a row that was not raced, of backward, of a race before there were any.
  std::vector<double> wide_samples_us;
  double wide_median_us = 0;          ///< 0 without them; kept where samples are left out, as in presets
  double predicted_us = 0;            ///< the cost model's
  std::vector<int> clocks_mhz;        ///< SM clock of each sample, 0 where unknown; empty if none was recorded
  int sm_clock_mhz = 0;               ///< their median; 0 if unknown
  double error_o = 0, error_lse = 0;  ///< relative error of O, backward the largest of dQ, dK and dV; max abs
                                      ///< error of LSE; NaN where an output held NaN
  int registers = 0, spill_bytes = 0;
  std::size_t shared_bytes = 0;
  double compile_ms = 0;
  // provenance
  std::string source_hash;  ///< KernelPlan::source_hash() of what was measured; see also kTemplatesMark
  std::string compiler, driver, protocol, attune_version;
  NodeGpu node;            ///< that it was measured on
  std::string created_at;  ///< UTC; stored as canonical_time()
  /// Lamport's number: 1 + the greatest of the database that it was appended to. Exports and merges keep it, so that
  /// what is newer does not depend on the clock of a machine. 0: of a version that numbered nothing. The rows of one
  /// race have the same.
  std::int64_t sequence = 0;

  double tflops() const;  ///< counted FLOPs over the median; 0 without samples
  void summarize();       ///< medians, p20, p80 and the clock's median from the samples
  /// What rows are ranked by: the median of the samples, for an estimate the prediction; 0 if there is neither.
  double ranking_us() const;
};

/// What begins the source_hash of a row of version 0.1, which knew its plans by the hash of all templates that their
/// family could include: "templates:a2c9197d29983644".
inline constexpr std::string_view kTemplatesMark = "templates:";

/// Whether a row of version 0.1 was measured with the last templates that its pass and family had there, and the
/// kernels that the built-in templates make of its config now have the same machine code.
bool is_of_last_templates(const Measurement& row);

/// No database appends so many rows: 2^53, beyond which a double of JSON tells two numbers no longer apart.
inline constexpr std::int64_t kGreatestSequence = std::int64_t{1} << 53;
/// The greatest sequence of a row that comes from elsewhere, so that there is always a greater one for the next row of
/// one's own.
inline constexpr std::int64_t kGreatestForeignSequence = kGreatestSequence / 2;

/// Why these values cannot have been measured, as the rest of a sentence that begins with the row: "its median lies
/// beyond its own quantiles". Empty if they can: every number is finite and not negative, quantiles are in order, times
/// of day are ones, a row that is ok has a time, that is not below what the device's units need for the work
/// (least_us()), nor is one with wide scores, of which there are as many as of the others. Whether it was changed since
/// it was stored is content_hash()'s to say.
std::string impossibility(const Measurement& measurement);

/// Whether a GPU may have so many SMs.
bool is_count_of_sms(int count);

/// Why a row that is ok is never picked, in the same way: "its error of 0.5 is beyond the bound of 0.003". Empty if the
/// errors that were recorded are within the bounds that a trial holds outputs to (runtime/oracle/output_bounds.h).
std::string error_beyond_bounds(const Measurement& measurement);

/// A time that no kernel can undercut: counted FLOPs at the peak of the fastest matrix unit, or bytes beyond twice the
/// L2 at the rate of device memory, at clocks 1.25 times the nominal. Of a device that is not known by name, four times
/// the rates of the fastest SM that is. 0 where tensors say which pairs there are: attention masks, used lengths.
double least_us(const AttentionProblem& problem, const std::string& device, int sm_count);

/// Whether `a` is newer than `b`: by sequence, of equal ones by created_at, then by content_hash(). The order is total
/// over rows that differ, and the same in every database that holds them.
bool is_newer(const Measurement& a, const Measurement& b);

/// Whether `a` is to be chosen before `b` (both ok): the higher rigor; then one that was raced before one that was not;
/// the newer race by sequence, then by when it began, and in a race the place in it, which may be decided by a fixed
/// order where times tie; then the smaller ranking_us, then the canonical config text, so that two runs agree. A row
/// without a ranking time comes last.
bool ranks_before(const Measurement& a, const Measurement& b);

/// How a race weighs the two spreads of scores: the geometric mean of both times, the same weight for either, so that
/// twice the time on one is made good by half the time on the other, whatever takes longer. Times are greater than 0.
double both_spreads(double us, double wide_us);
/// The same for each round. Without wide times those of the problem's own scores alone.
std::vector<double> both_spreads(const std::vector<double>& samples_us, const std::vector<double>& wide_samples_us);

/// The quantile of an unsorted sample, interpolated linearly between order statistics; 0 if it is empty.
double quantile(std::vector<double> values, double probability);

/// The version of Attune that writes rows: "0.1.0".
std::string_view attune_version();

}  // namespace attune
