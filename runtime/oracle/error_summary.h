#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "generator/problem/attention_problem.h"
#include "runtime/oracle/output_bounds.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

/// Errors of some elements of an output. The fields lie as templates/kernels/compare_output.cu stores them.
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

/// Where element `index` of (B, Hq, Sq, D) is in a tensor, in elements.
std::int64_t offset_of_element(const AttentionProblem& problem, const TensorView& tensor, std::int64_t index);

/// An output as comparisons know it.
struct ComparedOutput {
  std::string name;
  Operand shape = Operand::o;  ///< the operand of its shape and element: o, k or d_bias
  OutputBounds bounds{};
  double noise_squares = 0;  ///< what counts as part of the reference's squares beside its own
};
ComparedOutput compared_o(const AttentionProblem& problem);
/// A gradient as comparisons know it: dq (shape o), dk or dv (shape k), dbias, as compare_backward() documents them.
ComparedOutput compared_gradient(const AttentionProblem& problem, std::string name, Operand shape,
                                 double noise_squares);

/// What the summary of all elements says. `element` is asked for the worst one, if a complaint names it; indices are
/// those of (B, H, S, D).
OutputErrors errors_of(const AttentionProblem& problem, const ComparedOutput& output, ErrorSummary summary,
                       const std::function<ComparedElement(std::int64_t index)>& element);

/// A packed output and what it should be.
struct ComparedTensor {
  ComparedOutput output;
  std::span<const double> reference, weight;  ///< (B, H, S, D)
  std::span<const std::uint16_t> elements;    ///< in problem.layout
};

/// Throws Error(invalid_argument) if there are not as many elements as the reference has.
OutputErrors compare_tensor(const AttentionProblem& problem, const ComparedTensor& tensor);

/// `d_sinks` holds a number for each query head. Throws Error(invalid_argument) otherwise.
OutputErrors compare_sinks(const ReferenceSinkGradient& reference, std::span<const float> d_sinks);

/// `d_bias` holds the elements of the bias's gradient, packed. Throws Error(invalid_argument) otherwise.
OutputErrors compare_bias(const AttentionProblem& problem, const ReferenceGradient& reference,
                          std::span<const std::byte> d_bias);

/// `lse` holds as many rows as the reference. Throws Error(invalid_argument) otherwise.
OutputErrors compare_lse(const AttentionProblem& problem, std::span<const double> reference,
                         std::span<const float> lse);

}  // namespace attune
