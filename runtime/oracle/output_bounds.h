#pragma once

#include <algorithm>
#include <cmath>

#include "generator/problem/attention_problem.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"

namespace attune {

// The bounds of outputs, which compare_forward() and compare_backward() document. Header-only: a library without the
// oracle judges the errors that were recorded with results.

/// The bounds of O or of a gradient.
struct OutputBounds {
  double relative;         ///< of the norm of the error to the norm of the reference; 0: none
  double unit_roundoff;    ///< u: of what the element is computed from
  double smallest_step;    ///< h: what rounding costs where numbers are tiny
  double stored_roundoff;  ///< of the element itself

  /// The bound of the error of one element.
  double of_element(double reference, double weight) const {
    return 2 * unit_roundoff * weight + stored_roundoff * std::abs(reference) + smallest_step;
  }
};

/// Bounds of O with so many rows that errors average out.
inline OutputBounds bounds_of(DataType dtype) {
  const ElementFacts& element = facts_of(dtype);
  return {element.output_bound, element.unit_roundoff(), element.smallest_step(), element.unit_roundoff()};
}

/// Bounds of a gradient with so many pairs that errors average out.
inline OutputBounds gradient_bounds_of(DataType dtype) {
  constexpr double kFlushedStep = 0x1p-119;  // reference_attention.h says why
  const OutputBounds bounds = bounds_of(dtype);
  return {facts_of(dtype).gradient_bound, bounds.unit_roundoff, std::max(bounds.smallest_step, kFlushedStep),
          bounds.unit_roundoff};
}

/// The bound of O's norm, whatever the number of rows.
inline double relative_bound_of_few_rows(DataType dtype) { return 1.1 * bounds_of(dtype).unit_roundoff; }

/// What the kernels' tanh.approx loses of a tanh: PTX promises 2^-11, the test of the primitive holds cards to this.
inline constexpr double kTanhError = 0x1p-16;

/// With a softcap a score may be wrong by so much of it, and P likewise: as if P had been rounded more coarsely.
inline void add_tanh_error(const AttentionProblem& problem, OutputBounds* bounds) {
  bounds->unit_roundoff += kTanhError * problem.softcap / 2;
  bounds->stored_roundoff = bounds->unit_roundoff;
}

/// Bounds of a problem's O. With used lengths there may be few rows, however many are stored.
inline OutputBounds forward_bounds(const AttentionProblem& problem) {
  constexpr std::int64_t kRowsOfAnAverage = 256;
  OutputBounds bounds = bounds_of(problem.dtype);
  add_tanh_error(problem, &bounds);
  if (problem.row_batch() * problem.heads_q * problem.seq_q < kRowsOfAnAverage || problem.has_used_lengths())
    bounds.relative = relative_bound_of_few_rows(problem.dtype);
  return bounds;
}

/// Bounds of each gradient of a problem.
inline OutputBounds backward_bounds(const AttentionProblem& problem) {
  constexpr double kPairsOfAnAverage = 256;
  OutputBounds bounds = gradient_bounds_of(problem.dtype);
  add_tanh_error(problem, &bounds);
  const double pairs =
      static_cast<double>(problem.batch * problem.heads_q) * static_cast<double>(count_attended_pairs(problem));
  if (pairs < kPairsOfAnAverage || problem.has_used_lengths()) bounds.relative = 0;
  return bounds;
}

/// Bounds of the gradient of the bias, which may be stored in another type.
inline OutputBounds bias_gradient_bounds(const AttentionProblem& problem) {
  const ElementFacts& stored = facts_of(problem.bias_fp32 ? ElementType::fp32 : element_type(problem.dtype));
  OutputBounds bounds = backward_bounds(problem);
  bounds.stored_roundoff = stored.unit_roundoff();
  bounds.smallest_step = std::max(bounds.smallest_step, stored.smallest_step());
  return bounds;
}

/// The bound of the error of an LSE. With a softcap that of its tanh counts, of scores as large as the sum of their
/// exponentials leaves room for. With ALiBi scores of a tile's rows are counted from one diagonal, as many keys from a
/// row's own as the tile has rows: 256 here, of slopes up to 1.
inline double lse_bound(const AttentionProblem& problem, double reference) {
  constexpr double kAbsolute = 1e-5, kRelative = 1e-6, kOfSharedRows = 0x1p-23 * 256;
  if (!std::isfinite(reference)) return kAbsolute;
  const double size = std::abs(reference);
  const double largest_score = std::min<double>(problem.softcap, size + std::log(static_cast<double>(problem.seq_kv)));
  return kAbsolute + kRelative * size + kTanhError * largest_score + (problem.alibi ? kOfSharedRows : 0);
}

}  // namespace attune
