#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// A column of the table of problems beside the text, which it repeats for queries, and what it holds of a problem: a
/// text, else a real number, else a whole one.
struct ProblemColumn {
  std::string_view name;
  std::optional<std::string> text;
  std::optional<double> real;
  std::int64_t whole = 0;
};

/// All of them but the id and the text: one for each field that has a column, the mask's offset, and the words of the
/// fields that have none.
std::vector<ProblemColumn> problem_columns(const AttentionProblem& problem);

/// The last of them, which schemas before 7 do not have.
inline constexpr std::string_view kFeaturesColumn = "features";

/// Their names, with commas between them.
std::string names_of(const std::vector<ProblemColumn>& columns);

}  // namespace attune
