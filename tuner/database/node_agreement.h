#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tuner/database/measurement.h"

namespace attune {

/// A GPU whose times differ from those of other GPUs of its model.
struct DeviatingNode {
  NodeGpu node;
  std::string device;        ///< the model
  double time_ratio = 1;     ///< the median over what was compared: its time over the others'
  std::size_t compared = 0;  ///< questions
  std::size_t others = 0;    ///< GPUs that measured some of them, too
  std::string settings;      ///< how it is set otherwise than most of them: "power limit 500 W, others 700 W"; or empty
};

/// Finds one bad node among many by the rows of a database that several of them wrote.
///
/// Two rows have the same question if they are of the same problem, config, source, compiler and GPU model, timed, and
/// both or neither raced. A GPU's answer is the median of its rows' medians; the reference is the median of the answers
/// of all GPUs, of an even number the lower one, so that of two GPUs the slower one is off. A GPU deviates if the
/// median of its ratios to the reference, over at least kLeastCompared questions that others answered, too, is above
/// kMostRatio or below its inverse: trials of one GPU scatter by some percent each, their median by much less.
class NodeAgreement {
 public:
  static constexpr std::size_t kLeastCompared = 8;
  static constexpr double kMostRatio = 1.10;

  /// A row that can be believed. Those without a time or a known GPU (its UUID, else its host) are passed over.
  void add(const Measurement& row);

  /// By how far they are off, the farthest first.
  std::vector<DeviatingNode> deviating() const;

 private:
  struct Answers {
    std::map<std::string, std::vector<double>> times_us;  // by GPU
  };
  using Model = std::pair<std::string, int>;
  struct Gpu {
    Model model;
    NodeGpu node;  // as its newest row has it
    std::string created_at;
  };

  std::map<std::tuple<std::string, std::string, std::string, std::string, Model, bool>, Answers> questions_;
  std::map<std::string, Gpu> gpus_;  // by UUID, else by host
};

}  // namespace attune
