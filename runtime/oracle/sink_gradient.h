#pragma once

#include <span>

#include "runtime/oracle/reference_attention.h"

namespace attune {

/// Numbers of all queries, (B, Hq, Sq): LSE, delta, its largest error over the unit roundoff, and its likely one,
/// squared.
struct QueryStatistics {
  std::span<const double> lse, delta, delta_error, delta_noise;
};

/// The gradient of the sinks, with the bounds that compare_backward() documents. Empty of a problem without sinks.
ReferenceSinkGradient sink_gradient(const AttentionProblem& problem, std::span<const float> sinks,
                                    const QueryStatistics& queries);

}  // namespace attune
