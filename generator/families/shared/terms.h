#pragma once

#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// KernelFamily::terms: what they change is in the kernels of both passes.
inline constexpr std::string_view kTerms[] = {"softcap", "alibi",   "bias",  "attention_mask",
                                              "sink",    "lengths", "packed"};

/// Instructions of the ALU that ALiBi takes of a score: where rows of a tile share what they add, one for each score
/// and one for two; where each pair has its own distance, three.
inline constexpr double kAluOfSharedAlibi = 1.5, kAluOfAlibi = 3;

}  // namespace attune
