#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/ladder/attention_algorithm.h"
#include "runtime/oracle/reference_attention.h"
#include "runtime/oracle/term_values.h"
#include "tuner/database/measurement.h"
#include "tuner/trial/trial_status.h"
#include "tuner/trial/trial_tensors.h"

namespace attune {

struct TrialOptions {
  double sample_seconds = 0.1;  ///< time spent on timing samples
  int min_samples = 5;
  double hopeless_us =
      0;              ///< a config whose first samples are all above it is timed no further; 0: all are timed whole
  bool check = true;  ///< against the oracle before timing
  bool time = true;   ///< where the device can
  /// Spill stores and loads per thread; a kernel that spills more is not run. Nothing: as the family allows, and the
  /// default may spill what it does, and serialize its products.
  std::optional<int> spill_allowance_bytes;
  int cuda_ordinal = 0;  ///< of the device, for its clock
};

struct RaceOptions {
  double seconds = 0.5;  ///< of GPU time, for all configs together; twice as much if they run with wide scores, too
  int min_rounds = 15;
  bool wide = false;  ///< each config runs in each round with scores kWideSpread times as wide as well
  int cuda_ordinal = 0;
};

/// Times of several configs that were taken alternately.
struct RaceTimes {
  std::vector<std::vector<double>> samples_us;  ///< of each config, in their order; the i-th of all are of one round
  std::vector<std::vector<double>> wide_samples_us;  ///< with wide scores, of the same rounds; empty if not asked for
  std::vector<std::vector<int>> clocks_mhz;
  std::string complaint;  ///< why there are none
  std::string protocol;
};

/// The sizes that decide how much a bench asks of the machine.
inline constexpr double kCpuOracleFlops = 2e9;    ///< beyond, the reference comes from the device if it is a GPU
inline constexpr double kBatchMicroseconds = 50;  ///< shorter kernels are timed several launches to a sample

/// Inputs, outputs and reference of one problem on a device, made once and shared by the trials of its configs. A
/// backward problem's O and LSE are a forward kernel's, its loss depends on LSE. Not thread-safe.
///
/// Inputs are random normal numbers, the unused bytes around them NaN, so that a kernel that reads beyond its tensor
/// shows it. For a problem with an alignment of 2 all tensors start 2 bytes off a multiple of 16.
class TrialBench {
 public:
  /// On a GPU inputs are made and later checked by kernels of their own, which are compiled here. Never throws for want
  /// of memory: run() then reports out_of_memory. `given`: what the problem's terms read, as far as it is not to be
  /// random_terms(). Used lengths that are not given are checked alone: sequences of all rows are timed, packed ones
  /// with distributed_lengths(). Throws Error as run() does.
  TrialBench(std::shared_ptr<Device> device, const AttentionProblem& problem, std::uint64_t seed,
             const TermValues& given = {});
  ~TrialBench();

  /// Compile, poison the outputs (guard bands too), run once, compare with the oracle, check that inputs and guards are
  /// untouched, then time (where the device can): inputs and outputs rotate over copies that exceed twice the L2, the
  /// queue is kept full so that host latency stays out, all launches of a plan and the zeroing of its workspace are
  /// timed together, the SM clock is recorded, samples under thermal or hardware slowdown are discarded. Expected
  /// failures are the status; it throws only what is no property of the config: Error(invalid_argument),
  /// Error(nvrtc_unavailable), and Error(driver) for a CUDA error that sticks to the process.
  Measurement run(const KernelConfig& config, const TrialOptions& options = {});

  /// Times configs that passed their trials alternately, as run() does otherwise. Only where the device can time, and
  /// with wide scores only problems for which races_wide(). Throws Error.
  RaceTimes race(const std::vector<KernelConfig>& configs, const RaceOptions& options = {});
  /// The same of what prepare() made.
  RaceTimes race(const std::vector<std::shared_ptr<const PreparedAttention>>& prepared,
                 const RaceOptions& options = {});

  /// A checked run without timing, for `check`: errors of each output (o and lse, or dq, dk and dv); broken guards,
  /// changed inputs and a changed reference in device memory are entries named "guards", "inputs" and "reference".
  /// Throws Error if the kernel does not run.
  std::vector<OutputErrors> check(const PreparedAttention& prepared);

  /// Launches each kernel of the plan once and waits for them; nothing is compared. Throws Error.
  void launch_once(const PreparedAttention& prepared);

  /// Compiled and loaded for this bench's problem, as run() does it.
  std::shared_ptr<const PreparedAttention> prepare(const KernelConfig& config);
  std::shared_ptr<const PreparedAttention> prepare(AttentionAlgorithm algorithm);

  /// Makes the reference now; otherwise the first check does. Throws Error.
  void make_reference();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
