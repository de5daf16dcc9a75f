#include "generator/problem/mask_words.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "generator/problem/window.h"

namespace attune {
namespace {

bool parse_number(std::string_view text, std::int64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

constexpr std::string_view kOpen = "open";

std::string window_words(const AttentionProblem& problem) {
  const std::int64_t diagonal = window_diagonal(problem), left = offset_difference(diagonal, problem.first_offset);
  const std::string right = problem.mask_offset == kOpenDiagonal
                                ? std::string(kOpen)
                                : std::to_string(offset_difference(problem.mask_offset, diagonal));
  const std::string from = holds_aligned_diagonal(problem) ? "" : fmt::format("@{}", diagonal);
  return fmt::format("{}{},{}{}", kWindowWord, left, right, from);
}

// A side of a window: digits, or -1 for all.
std::optional<std::int64_t> parse_side(std::string_view text) {
  std::int64_t keys = 0;
  if (text == kOpen) return -1;
  if (text.empty() || text.front() == '-' || !parse_number(text, &keys)) return std::nullopt;
  return keys;
}

bool apply_window_word(std::string_view word, AttentionProblem* problem) {
  word.remove_prefix(kWindowWord.size());
  std::int64_t diagonal = bottom_right_offset(*problem);
  if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
    if (!parse_number(word.substr(at + 1), &diagonal)) return false;
    word = word.substr(0, at);
  }
  const std::size_t comma = word.find(',');
  if (comma == std::string_view::npos) return false;
  const auto left = parse_side(word.substr(0, comma)), right = parse_side(word.substr(comma + 1));
  if (!left || !right) return false;
  apply_window(*left, *right, diagonal, problem);
  return true;
}

}  // namespace

std::string mask_words(const AttentionProblem& asked) {
  const AttentionProblem problem = simplest_mask(asked);
  switch (problem.mask) {
    case MaskKind::none:
      return {};
    case MaskKind::causal:
      if (problem.mask_offset == bottom_right_offset(problem)) return "causal";
      if (problem.mask_offset == 0) return "causal-top-left";
      return fmt::format("causal@{}", problem.mask_offset);
    case MaskKind::window:
      return window_words(problem);
  }
  return {};
}

bool is_mask_word(std::string_view word) {
  return word == "causal" || word == "causal-top-left" || word.starts_with("causal@") || word.starts_with(kWindowWord);
}

bool apply_mask_word(std::string_view word, AttentionProblem* problem) {
  if (!is_mask_word(word)) return false;
  if (word.starts_with(kWindowWord)) return apply_window_word(word, problem);
  std::int64_t offset = 0;
  if (word == "causal") {
    offset = bottom_right_offset(*problem);
  } else if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
    if (!parse_number(word.substr(at + 1), &offset)) return false;
  }
  if (problem->mask == MaskKind::none) {
    problem->mask = MaskKind::causal;
    problem->mask_offset = offset;
    *problem = simplest_mask(*problem);
  } else {
    hide_outside(-kOpenDiagonal, offset, problem);
  }
  return true;
}

}  // namespace attune
