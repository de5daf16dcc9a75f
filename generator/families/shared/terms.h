#pragma once

#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// KernelFamily::terms: what they change is in the kernels of both passes.
inline constexpr std::string_view kTerms[] = {"softcap", "alibi",   "bias",    "attention_mask",
                                              "sink",    "dropout", "lengths", "packed"};

/// Instructions of the ALU that ALiBi takes of a score: where rows of a tile share what they add, one for each score
/// and one for two; where each pair has its own distance, three.
inline constexpr double kAluOfSharedAlibi = 1.5, kAluOfAlibi = 3;

/// What dropout's random bits take of an element, in instructions of the ALU: half of it are wide products, which are
/// slower, and exclusive ors of the rounds, the rest compares and selects.
inline double alu_of_dropout(const AttentionProblem& problem) { return problem.dropout == 0 ? 0 : 4.75; }
/// In backward, beside these: bits are turned, and dP is kept or not.
inline constexpr double kAluOfKeptGradient = 1.75;

}  // namespace attune
