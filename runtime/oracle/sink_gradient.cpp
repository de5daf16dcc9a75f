#include "runtime/oracle/sink_gradient.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "runtime/oracle/output_bounds.h"

namespace attune {

ReferenceSinkGradient sink_gradient(const AttentionProblem& problem, std::span<const float> sinks,
                                    const QueryStatistics& queries) {
  constexpr double kLikelyErrors = 8, kLeast = 1e-30;
  ReferenceSinkGradient gradient;
  if (!problem.sink) return gradient;
  const double unit_roundoff = backward_bounds(problem).unit_roundoff;
  for (std::int64_t head = 0; head < problem.heads_q; ++head) {
    const double sink = sinks[static_cast<std::size_t>(head)];
    double value = 0, most = 0, noise = 0, of_lse = 0;
    for (std::int64_t batch = 0; batch < problem.row_batch(); ++batch) {
      for (std::int64_t query = 0; query < problem.seq_q; ++query) {
        const auto row = static_cast<std::size_t>((batch * problem.heads_q + head) * problem.seq_q + query);
        const double lse = queries.lse[row], delta = queries.delta[row], p = std::exp(sink - lse);
        value -= p * delta;
        most += p * unit_roundoff * queries.delta_error[row];
        noise += p * p * queries.delta_noise[row];
        of_lse += 2 * p * std::abs(delta) * lse_bound(problem, lse);
      }
    }
    gradient.value.push_back(value);
    gradient.bound.push_back(std::min(most, kLikelyErrors * std::sqrt(noise)) + of_lse + kLeast);
  }
  return gradient;
}

}  // namespace attune
