#include <algorithm>

#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

constexpr double kPairsOfAnAverage = 256;

}  // namespace

bool BackwardErrors::within() const {
  return !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](const OutputErrors& output) { return output.within; });
}

BackwardErrors compare_backward(const AttentionProblem& problem, const ReferenceBackward& reference,
                                std::span<const std::uint16_t> d_q, std::span<const std::uint16_t> d_k,
                                std::span<const std::uint16_t> d_v) {
  OutputBounds bounds = gradient_bounds_of(problem.dtype);
  const double relative = bounds.relative;
  const double pairs =
      static_cast<double>(problem.batch * problem.heads_q) * static_cast<double>(count_attended_pairs(problem));
  if (pairs < kPairsOfAnAverage) bounds.relative = 0;  // not compared
  const auto compare = [&](const char* name, Operand shape, const ReferenceGradient& gradient,
                           std::span<const std::uint16_t> elements) {
    return compare_tensor(problem, {name, shape, bounds, gradient.value, gradient.weight,
                                    gradient.noise_squares / (relative * relative), elements});
  };
  return {{compare("dq", Operand::q, reference.d_q, d_q), compare("dk", Operand::k, reference.d_k, d_k),
           compare("dv", Operand::v, reference.d_v, d_v)}};
}

}  // namespace attune
