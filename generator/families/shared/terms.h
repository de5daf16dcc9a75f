#pragma once

#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// KernelFamily::terms of all families: what they change is in the kernels of both passes.
inline constexpr std::string_view kTerms[] = {"softcap", "alibi", "bias", "attention_mask", "sink", "lengths"};

/// Instructions of the ALU that ALiBi takes of a score: where rows of a tile share what they add, one for each score
/// and one for two; where each pair has its own distance, three.
inline constexpr double kAluOfSharedAlibi = 1.5, kAluOfAlibi = 3;

/// Clocks of an SM for the elements that tensors of pairs have for so many pairs: a warp's load of 32 of them touches
/// eight rows, and the L1 takes one in a clock.
inline double clocks_of_pair_tensors(const AttentionProblem& problem, double pairs) {
  constexpr double kClocksOfElement = 8.0 / 32;
  const int tensors = (problem.bias != PairTensor::none) + (problem.attention_mask != PairTensor::none);
  return tensors * pairs * kClocksOfElement;
}

}  // namespace attune
