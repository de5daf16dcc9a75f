#pragma once

#include <string>
#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

// The words of a mask in a problem's text. apply_mask_word() of attention_problem.h reads one of them.

/// The words of the simplest_mask(): "causal", "causal-top-left", "causal@5", "window=100,20"; empty of a mask that
/// hides nothing.
std::string mask_words(const AttentionProblem& problem);

/// Whether a word is one of a mask, well formed or not.
bool is_mask_word(std::string_view word);

}  // namespace attune
