#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/error.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/mask_words.h"
#include "generator/problem/problem_fields.h"
#include "generator/problem/window.h"

// The canonical text of a problem, written and read by the table of its fields.

namespace attune {
namespace {

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpace = " \t\r\n";
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpace, end);
  }
  return words;
}

template <typename Number>
bool parse_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string known_words() {
  std::vector<std::string> words;
  for (const ProblemField& field : problem_fields()) {
    switch (field.form) {
      case ProblemFieldForm::number:
        words.push_back(fmt::format("{}N ({})", field.word, field.called));
        break;
      case ProblemFieldForm::real:
        words.push_back(fmt::format("{}X", field.word));
        break;
      case ProblemFieldForm::name:
        for (const std::string_view name : field.names) words.push_back(field.word_of(name));
        break;
      case ProblemFieldForm::flag:
        words.emplace_back(field.word);
        break;
      case ProblemFieldForm::mask:
        words.emplace_back(kMaskWords.substr(kMaskWords.find("causal")));
        break;
    }
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

// What a word says of a field other than the mask: its value, if the word is the field's. Throws where only its number
// is wrong.
std::optional<std::int64_t> value_of(const ProblemField& field, std::string_view word, std::string_view text) {
  switch (field.form) {
    case ProblemFieldForm::number: {
      std::int64_t value = 0;
      if (word.starts_with(field.word) && parse_number(word.substr(field.word.size()), &value)) return value;
      break;
    }
    case ProblemFieldForm::real: {
      if (!word.starts_with(field.word)) break;
      float value = 0;
      const std::string_view number = word.substr(field.word.size());
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
      const bool whole = end == number.data() + number.size();
      if (error == std::errc::result_out_of_range && whole) {
        refuse(fmt::format("problem '{}': '{}' is 0 or infinite as a float; leave it out for its default", text, word));
      }
      if (error != std::errc() || !whole)
        refuse(fmt::format("problem '{}': '{}' needs a number after '{}'", text, word, field.word));
      return real_bits(value);
    }
    case ProblemFieldForm::name: {
      const auto found = std::find_if(field.names.begin(), field.names.end(),
                                      [&](std::string_view name) { return field.word_of(name) == word; });
      if (found != field.names.end()) return found - field.names.begin();
      break;
    }
    case ProblemFieldForm::flag:
      if (word == field.word) return 1;
      break;
    case ProblemFieldForm::mask:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string canonical_text(const AttentionProblem& asked) {
  const AttentionProblem problem = simplest_mask(asked);
  std::string text;
  for (const ProblemField& field : problem_fields()) {
    if (!field.always && field.is_standard(problem)) continue;
    const std::string words = field.text(problem);
    if (words.empty()) continue;  // of a mask that hides nothing
    if (!text.empty()) text += ' ';
    text += words;
  }
  return text;
}

AttentionProblem parse_problem(std::string_view text) {
  AttentionProblem problem;
  std::set<std::string_view> seen;  // what words have set
  const auto once = [&](std::string_view called, std::string_view word) {
    if (!seen.insert(called).second) {
      refuse(
          fmt::format("problem '{}': '{}' sets the {} a second time; leave one of the two words", text, word, called));
    }
  };
  const auto parse_word = [&](std::string_view word) {
    for (const ProblemField& field : problem_fields()) {
      const auto value = value_of(field, word, text);
      if (!value) continue;
      once(field.called, word);
      field.set(problem, *value);
      return true;
    }
    return false;
  };

  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) refuse("an empty problem text; write for example 'forward bf16 b2 hq16 sq4096 d128 causal'");
  std::vector<std::string_view> words_of_mask;
  for (const std::string_view word : words) {
    if (is_mask_word(word)) {
      once(word.starts_with(kWindowWord) ? "window" : "mask", word);
      words_of_mask.push_back(word);
    } else if (!parse_word(word)) {
      refuse(fmt::format("problem '{}': does not understand '{}'; known words: {}", text, word, known_words()));
    }
  }
  for (const ProblemField& field : problem_fields()) {
    if (!seen.contains(field.called) && field.form != ProblemFieldForm::mask)
      field.set(problem, field.standard(problem));
  }
  for (const std::string_view word : words_of_mask) {
    if (apply_mask_word(word, &problem)) continue;
    refuse(fmt::format("problem '{}': '{}' needs {}", text, word,
                       word.starts_with(kWindowWord)
                           ? "the form window=LEFT,RIGHT or window=LEFT,RIGHT@OFFSET; a side is a "
                             "number of keys, or 'open'"
                           : "a whole number after the '@'"));
  }
  return simplest_mask(problem);
}

}  // namespace attune
