#pragma once

#include <bit>

#include "generator/problem/attention_problem.h"

namespace attune {

/// Threads of a CTA of delta and of the conversions, at most.
inline constexpr int kThreadsOfRows = 128;

/// Threads that share a row, a chunk of 16 bytes each: a power of two.
inline int row_lanes(const AttentionProblem& problem) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem.head_dim / 8)));
}

/// The partial tile/chunk_* that moves a chunk of rows as aligned as the problem's.
inline const char* chunk_access(const AttentionProblem& problem) {
  return problem.alignment >= 16 ? "chunk_async" : "chunk_elementwise";
}

}  // namespace attune
