#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "generator/attention_problem.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

/// The bounds of O, as compare_forward() documents them, or of a gradient, as compare_backward() does.
struct OutputBounds {
  double relative;  ///< of the norm of the error to the norm of the reference
  double unit_roundoff;
  double smallest_step;  ///< half of the smallest subnormal number: what rounding costs where numbers are tiny

  /// Of the error of one element.
  double of_element(double reference, double weight) const;
};
OutputBounds bounds_of(DataType dtype);
OutputBounds gradient_bounds_of(DataType dtype);

/// Errors of some elements of an output. The fields lie as templates/kernels/compare_forward.cu stores them.
struct ErrorSummary {
  double error_squares = 0, reference_squares = 0;
  double max_abs = 0;
  double worst_ratio = 0;         ///< of an error to its bound
  std::int64_t worst_index = -1;  ///< the first of those that have it

  void add(std::int64_t index, double value, double reference, double bound);
  void merge(const ErrorSummary& other);
};
static_assert(sizeof(ErrorSummary) == 40);

struct ComparedElement {
  double value, reference, bound;
};

/// Where element `index` of ReferenceForward::o is in O, in elements.
std::int64_t offset_of_element(const AttentionProblem& problem, const TensorView& o, std::int64_t index);

/// What the summary of all elements of O says. `element` is asked for the worst one, if a complaint names it; indices
/// are those of ReferenceForward::o.
OutputErrors errors_of_o(const AttentionProblem& problem, const ErrorSummary& summary,
                         const std::function<ComparedElement(std::int64_t index)>& element);

/// A packed output and what it should be.
struct ComparedTensor {
  std::string name;
  Operand shape;  ///< the operand that has its heads and rows: o, k or v
  OutputBounds bounds;
  std::span<const double> reference, weight;  ///< (B, H, S, D)
  double noise_squares = 0;                   ///< what counts as part of the reference's squares beside its own
  std::span<const std::uint16_t> elements;    ///< in problem.layout
};

/// Throws Error(invalid_argument) if there are not as many elements as the reference has.
OutputErrors compare_tensor(const AttentionProblem& problem, const ComparedTensor& tensor);

/// `lse` holds as many rows as the reference. Throws Error(invalid_argument) otherwise.
OutputErrors compare_lse(const AttentionProblem& problem, std::span<const double> reference,
                         std::span<const float> lse);

}  // namespace attune
