#include "tuner/database/problem_columns.h"

#include "generator/problem/problem_fields.h"

namespace attune {
namespace {

ProblemColumn column_of(const ProblemField& field, const AttentionProblem& problem) {
  ProblemColumn column;
  column.name = field.key;
  column.whole = field.get(problem);
  if (field.form == ProblemFieldForm::real) column.real = real_value(column.whole);
  if (!field.names.empty()) column.text = field.names[static_cast<std::size_t>(column.whole)];
  return column;
}

}  // namespace

std::vector<ProblemColumn> problem_columns(const AttentionProblem& problem) {
  std::vector<ProblemColumn> columns;
  for (const ProblemField& field : problem_fields()) {
    if (!field.feature_weight) columns.push_back(column_of(field, problem));
  }
  ProblemColumn& offset = columns.emplace_back();
  offset.name = "mask_offset";
  offset.whole = problem.mask_offset;
  ProblemColumn& features = columns.emplace_back();
  features.name = kFeaturesColumn;
  features.text = feature_words(problem);
  return columns;
}

std::string names_of(const std::vector<ProblemColumn>& columns) {
  std::string names;
  for (const ProblemColumn& column : columns) names.append(names.empty() ? "" : ", ").append(column.name);
  return names;
}

}  // namespace attune
