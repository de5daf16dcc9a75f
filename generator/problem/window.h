#pragma once

#include <cstdint>
#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// What the word of a window begins with.
inline constexpr std::string_view kWindowWord = "window=";

/// a - b of lengths and offsets; 0 where that is no int64, as of lengths that validate() refuses.
inline std::int64_t offset_difference(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? 0 : result;
}

/// Whether the diagonal that is aligned bottom right lies in a window.
inline bool holds_aligned_diagonal(const AttentionProblem& problem) {
  const std::int64_t aligned = bottom_right_offset(problem);
  return problem.first_offset <= aligned && aligned <= problem.mask_offset;
}

/// The diagonal from which the sides of a window are counted: the one that is aligned bottom right, if the window holds
/// it; else its last one, or its first where it is open to the right.
inline std::int64_t window_diagonal(const AttentionProblem& problem) {
  if (holds_aligned_diagonal(problem)) return bottom_right_offset(problem);
  return problem.mask_offset == kOpenDiagonal ? problem.first_offset : problem.mask_offset;
}

}  // namespace attune
