#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "tuner/database/measurement.h"
#include "tuner/search/comparison.h"

namespace attune {

/// Which candidates a final race is between, and what it decides. Plain functions of values: the same rows and samples
/// give the same winner, whoever asks.
struct RaceRules {
  double reach = 1.03;       ///< finalists' times lie within this of the fastest
  int max_finalists = 6;     ///< the default config may be one more
  double margin = 1.005;     ///< a time is only slower if it is so by more than this
  double confidence = 0.95;  ///< of the interval that says so
};

/// Indices into `rows` of those that go into the race, the fastest first: those that are ok, timed and within reach of
/// the fastest, and the default config whatever its time (last, if it would not be in otherwise). Empty if no row is
/// ok. Of rows of one config the last stands for it.
std::vector<std::size_t> finalists(const std::vector<Measurement>& rows, const KernelConfig& default_config,
                                   const RaceRules& rules = {});

/// Places of a race, as indices into `configs`, the winner first. `samples_us[i][r]` is the time of config i in round
/// r; those that left the race early have the first of the rounds alone. The fastest is that of all rounds with the
/// least median; all are compared with it round by round.
///
/// The default config wins unless it is slower than the fastest beyond doubt: the interval of the median of its time
/// over the fastest's lies beyond `margin`, at `confidence` for all finalists together (Bonferroni), since the fastest
/// was picked among them. Otherwise the first by canonical text wins of those that may be the fastest: the median of
/// their time over its is within `margin` and so is the low end of the interval; so two runs agree. What is slower than
/// the default never wins, however noisy. The others follow by that median.
std::vector<std::size_t> places(const std::vector<KernelConfig>& configs,
                                const std::vector<std::vector<double>>& samples_us, const KernelConfig& default_config,
                                const RaceRules& rules = {});

/// A final race as a value that knows no device: which kernels run alternately next, until it is decided or its time is
/// up. The same trials and times give the same winner.
///
/// It ranks by both_spreads(): in each round the geometric mean of a config's times with the problem's own scores and
/// with wide ones, where there are such.
///
///   1. A first batch between those that noise may have put behind the first, or that wide scores may bring to the
///      front, for trials have the problem's own scores alone. How far the times with these scatter about those of the
///      trials is the noise, and says who else may be the fastest: if that is more, the race begins anew with them.
///   2. Batch after batch: who is slower than the leader beyond doubt leaves, but for the default config. It is decided
///      when of each of the others the interval says "slower" or "a tie".
///
/// It takes at most kMostBatches batches and the first, and after two of them none begins beyond 4 times the seconds
/// that it was given; a batch takes half of these, or kRounds rounds where launches are long, when fewer configs take
/// part. A race with wide scores has the seconds once for each spread.
class FinalRace {
 public:
  static constexpr int kRounds = 10;  ///< of a batch, at least
  static constexpr int kMostBatches = 8;
  static constexpr int kFewestFinalists = 6;  ///< beside the default, if so many are within reach
  static constexpr int kMostFinalists = 32;   ///< if the race has time for them

  /// Between rows of trials, of which finalists() says who can take part. `seconds` of GPU time for each spread.
  FinalRace(std::vector<Measurement> trials, const KernelConfig& default_config, double seconds,
            const RaceRules& rules = {});

  struct Batch {
    std::vector<std::size_t> entrants;  ///< indices into the trials
    double seconds = 0;                 ///< of GPU time for each spread, and at least
    int min_rounds = 0;
  };
  /// Who takes part now, as indices into the trials: default_config among them if its trial was ok.
  std::vector<std::size_t> entrants() const;

  /// What is to be timed alternately next; nothing if the race is over.
  std::optional<Batch> next() const;
  /// What came of it: as many times, wide times and clocks of each entrant, one a round, in their order. No lists of
  /// wide times: there are none, in this batch as in all of the race.
  void tell(const std::vector<std::vector<double>>& samples_us, const std::vector<std::vector<double>>& wide_samples_us,
            const std::vector<std::vector<int>>& clocks_mhz);
  /// The batch failed: begins anew between the fewest. False if they were not more, or were tried already.
  bool narrow();

  /// One that has run: a trial's index and what it took.
  struct Finalist {
    std::size_t trial = 0;
    std::vector<double> samples_us, wide_samples_us;
    std::vector<int> clocks_mhz;
  };
  /// By place, the winner first; none before the first batch.
  std::vector<Finalist> standings() const;

 private:
  struct Entrant {
    Finalist so_far;
    bool racing = true;
    std::vector<double> ranked_us = {};  // both_spreads() of each round
  };
  void begin(double reach, int most);
  void drop_the_slower();
  bool decided() const;
  std::size_t leader() const;
  double noise_of_trials() const;
  int most_finalists(int most) const;

  std::vector<Measurement> trials_;
  KernelConfig default_;
  double seconds_;
  RaceRules rules_;
  std::vector<Entrant> entrants_;
  bool first_ = true, narrowed_ = false;
  int batches_ = 0;
  double spent_us_ = 0;
};

/// How the protocol of a row ends that no race decided: an election, which the database takes for the winner of a race
/// of one until there is another.
inline constexpr std::string_view kUntilARace = "; stands until a race decides";
bool is_election(const Measurement& measurement);

/// Whether the rounds of two rows were taken alternately.
bool of_one_race(const Measurement& a, const Measurement& b);

/// Whether two rows are compared by both spreads: both have times with wide scores, as samples or as a median.
bool have_both_spreads(const Measurement& a, const Measurement& b);

/// The time of `a` over that of `b` by their medians, for rows that may have no samples: of both_spreads() if they
/// have_both_spreads(), else of ranking_us(). Both have a ranking time.
double ratio_of_medians(const Measurement& a, const Measurement& b);

/// Two rows of one problem and device, by both_spreads() of each round where both have wide samples. Of one race: round
/// by round. Of different runs: the ratio and the interval that the samples give it, and no verdict, for what drifted
/// between the runs is in neither's samples; a row and its copy are the same.
Comparison compare_rows(const Measurement& a, const Measurement& b, const ComparisonOptions& options = {});

}  // namespace attune
