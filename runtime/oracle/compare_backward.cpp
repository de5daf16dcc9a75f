#include <algorithm>
#include <string>
#include <utility>

#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

bool BackwardErrors::within() const {
  return !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](const OutputErrors& output) { return output.within; });
}

ComparedOutput compared_gradient(const AttentionProblem& problem, std::string name, Operand shape,
                                 double noise_squares) {
  const double relative = gradient_bounds_of(problem.dtype).relative;
  const OutputBounds bounds = shape == Operand::d_bias ? bias_gradient_bounds(problem) : backward_bounds(problem);
  return {std::move(name), shape, bounds, noise_squares / (relative * relative)};
}

BackwardErrors compare_backward(const AttentionProblem& problem, const ReferenceBackward& reference,
                                std::span<const std::uint16_t> d_q, std::span<const std::uint16_t> d_k,
                                std::span<const std::uint16_t> d_v, std::span<const float> d_sinks,
                                std::span<const std::byte> d_bias) {
  const auto compare = [&](const char* name, Operand shape, const ReferenceGradient& gradient,
                           std::span<const std::uint16_t> elements) {
    return compare_tensor(problem, {compared_gradient(problem, name, shape, gradient.noise_squares), gradient.value,
                                    gradient.weight, elements});
  };
  BackwardErrors errors{{compare("dq", Operand::o, reference.d_q, d_q), compare("dk", Operand::k, reference.d_k, d_k),
                         compare("dv", Operand::k, reference.d_v, d_v)}};
  if (problem.sink) errors.outputs.push_back(compare_sinks(reference.d_sinks, d_sinks));
  if (problem.bias_gradient) errors.outputs.push_back(compare_bias(problem, reference.d_bias, d_bias));
  return errors;
}

}  // namespace attune
