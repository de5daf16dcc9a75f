#pragma once

#include <string>
#include <vector>

#include "tuner/cli/output.h"
#include "tuner/database/measurement.h"
#include "tuner/search/comparison.h"

namespace attune::cli {

/// Two rows of one problem on one device, and what came of comparing them.
struct ComparedPair {
  Measurement a, b;
  Comparison comparison;
  std::vector<std::string> caveats;  ///< what else differs between the measurements
  bool in_turns = false;             ///< the i-th samples of both are of one round: a drift meets both alike
};

/// Compares stored rows.
ComparedPair compare_stored(Measurement a, Measurement b, const ComparisonOptions& options);

/// "A is faster: 4.8 % less time (A takes 0.9491 to 0.9557 of B's time at 95 %)". Of rows of different runs the
/// interval is that of their samples alone, and no verdict comes of it.
std::string describe_verdict(const ComparedPair& pair);

Json to_json(const ComparedPair& pair);

}  // namespace attune::cli
