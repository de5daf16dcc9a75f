#include "generator/families/kernel_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "generator/error.h"
#include "generator/families/backward_sm80/family.h"
#include "generator/families/backward_sm90/family.h"
#include "generator/families/family_word.h"
#include "generator/families/forward_sm80/family.h"
#include "generator/families/forward_sm90/family.h"
#include "generator/lazy_value.h"
#include "generator/problem/problem_fields.h"

namespace attune {

std::span<const KernelFamily> kernel_families() {
  static constinit LazyValue<const std::array<KernelFamily, 4>> families;
  return families.get([] {
    return std::array{forward_sm80_family(), forward_sm90_family(), backward_sm80_family(), backward_sm90_family()};
  });
}

bool serves(const KernelFamily& family, const Question& question, Reasons* reasons) {
  bool has_terms = true;
  for (const ProblemField& field : problem_fields()) {
    if (field.role != FieldRole::term || field.is_standard(question.problem)) continue;
    if (std::find(family.terms.begin(), family.terms.end(), field.key) != family.terms.end()) continue;
    has_terms = false;
    reasons->push_back(fmt::format("{}: kernels of {} do not compute it", field.text(question.problem), family.name));
  }
  return family.supports(question, reasons) && has_terms;
}

const KernelFamily* find_family(Pass pass, FamilyWord word) {
  for (const KernelFamily& family : kernel_families()) {
    if (family.pass == pass && family.word == word) return &family;
  }
  return nullptr;
}

const KernelFamily& family_of(const AttentionProblem& problem, const KernelConfig& config) {
  if (const KernelFamily* family = find_family(problem.pass, config.family)) return *family;
  throw Error(ErrorCode::infeasible_config, no_such_family(problem.pass, config.family));
}

const KernelFamily& general_family(Pass pass) { return *find_family(pass, FamilyWord::sm80); }

std::string no_such_family(Pass pass, FamilyWord word) {
  std::string words;
  for (const KernelFamily& family : kernel_families()) {
    if (family.pass == pass) words += fmt::format("{}{}", words.empty() ? "" : " or ", to_string(family.word));
  }
  return fmt::format("{} kernels are of family {} only, not {}", to_string(pass), words, to_string(word));
}

std::string_view to_string(FamilyWord family) {
  switch (family) {
    case FamilyWord::sm80:
      return "sm80";
    case FamilyWord::sm90:
      return "sm90";
  }
  return "";
}

unsigned families_of(FamilyWord word) {
  switch (word) {
    case FamilyWord::sm80:
      return kForwardSm80 | kBackwardSm80;
    case FamilyWord::sm90:
      return kForwardSm90 | kBackwardSm90;
  }
  return 0;
}

std::vector<std::string_view> family_words() {
  std::vector<std::string_view> words;
  for (const KernelFamily& family : kernel_families()) {
    const std::string_view word = to_string(family.word);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words;
}

std::optional<FamilyWord> parse_family_word(std::string_view text) {
  for (const KernelFamily& family : kernel_families()) {
    if (to_string(family.word) == text) return family.word;
  }
  return std::nullopt;
}

}  // namespace attune
