#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/error.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/element_type.h"
#include "generator/problem/window.h"

// The canonical text of a problem: written, read, and its words.

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

std::string shortest_text(float value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end);
}

constexpr std::string_view kOpen = "open";

std::string window_words(const AttentionProblem& problem) {
  const std::int64_t diagonal = window_diagonal(problem), left = offset_difference(diagonal, problem.first_offset);
  const std::string right = problem.mask_offset == kOpenDiagonal
                                ? std::string(kOpen)
                                : std::to_string(offset_difference(problem.mask_offset, diagonal));
  const std::string from = holds_aligned_diagonal(problem) ? "" : fmt::format("@{}", diagonal);
  return fmt::format(" {}{},{}{}", kWindowWord, left, right, from);
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

// A mask's words of the canonical text, with a space before them; nothing of a problem without one.
std::string mask_words(const AttentionProblem& asked) {
  const AttentionProblem problem = simplest_mask(asked);
  switch (problem.mask) {
    case MaskKind::none:
      return {};
    case MaskKind::causal:
      if (problem.mask_offset == bottom_right_offset(problem)) return " causal";
      if (problem.mask_offset == 0) return " causal-top-left";
      return fmt::format(" causal@{}", problem.mask_offset);
    case MaskKind::window:
      return window_words(problem);
  }
  return {};
}

bool is_mask_word(std::string_view word) {
  return word == "causal" || word == "causal-top-left" || word.starts_with("causal@") || word.starts_with(kWindowWord);
}

constexpr std::string_view kKnownWords =
    "forward, backward, fp16, bf16, bN (batch), hqN and hkvN (heads), sqN and skvN (lengths), dN (head dim), causal, "
    "causal-top-left, causal@OFFSET, window=LEFT,RIGHT, window=LEFT,RIGHT@OFFSET, scaleX, bshd, bhsd, alignN, "
    "deterministic";
}  // namespace

std::string canonical_text(const AttentionProblem& problem) {
  std::string text =
      fmt::format("{} {} b{} hq{}", to_string(problem.pass), to_string(problem.dtype), problem.batch, problem.heads_q);
  if (problem.heads_kv != problem.heads_q) text += fmt::format(" hkv{}", problem.heads_kv);
  text += fmt::format(" sq{}", problem.seq_q);
  if (problem.seq_kv != problem.seq_q) text += fmt::format(" skv{}", problem.seq_kv);
  text += fmt::format(" d{}", problem.head_dim);
  text += mask_words(problem);
  if (problem.softmax_scale != default_softmax_scale(problem.head_dim)) {
    text += " scale" + shortest_text(problem.softmax_scale);
  }
  if (problem.layout != Layout::bshd) text += fmt::format(" {}", to_string(problem.layout));
  if (problem.alignment != 16) text += fmt::format(" align{}", problem.alignment);
  if (problem.deterministic) text += " deterministic";
  return text;
}

AttentionProblem parse_problem(std::string_view text) {
  AttentionProblem problem;
  std::set<std::string> seen;  // fields that a word has set; some defaults depend on which
  const auto once = [&](const std::string& field, std::string_view word) {
    if (!seen.insert(field).second) {
      refuse(
          fmt::format("problem '{}': '{}' sets the {} a second time; leave one of the two words", text, word, field));
    }
  };

  struct NumberWord {
    std::string_view prefix;
    std::string_view field;
    std::int64_t* value;
  };
  std::int64_t head_dim = problem.head_dim, alignment = problem.alignment;
  const NumberWord number_words[] = {
      {"b", "batch", &problem.batch},          {"hq", "query heads", &problem.heads_q},
      {"hkv", "key heads", &problem.heads_kv}, {"sq", "query length", &problem.seq_q},
      {"skv", "key length", &problem.seq_kv},  {"d", "head dim", &head_dim},
      {"align", "alignment", &alignment},
  };
  const auto parse_number_word = [&](std::string_view word) {
    for (const NumberWord& known : number_words) {
      std::int64_t value = 0;
      if (!word.starts_with(known.prefix) || !parse_number(word.substr(known.prefix.size()), &value)) continue;
      once(std::string(known.field), word);
      *known.value = value;
      return true;
    }
    return false;
  };

  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) refuse("an empty problem text; write for example 'forward bf16 b2 hq16 sq4096 d128 causal'");
  std::vector<std::string_view> mask_words;
  for (const std::string_view word : words) {
    if (word == "forward" || word == "backward") {
      once("pass", word);
      problem.pass = word == "forward" ? Pass::forward : Pass::backward;
    } else if (word == "fp16" || word == "bf16") {
      once("dtype", word);
      problem.dtype = word == "fp16" ? DataType::fp16 : DataType::bf16;
    } else if (word == "bshd" || word == "bhsd") {
      once("layout", word);
      problem.layout = word == "bshd" ? Layout::bshd : Layout::bhsd;
    } else if (word == "deterministic") {
      once("determinism", word);
      problem.deterministic = true;
    } else if (is_mask_word(word)) {
      once(word.starts_with(kWindowWord) ? "window" : "mask", word);
      mask_words.push_back(word);
    } else if (word.starts_with("scale")) {
      once("scale", word);
      const std::string_view number = word.substr(5);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), problem.softmax_scale);
      if (error == std::errc::result_out_of_range && end == number.data() + number.size()) {
        refuse(fmt::format("problem '{}': '{}' is 0 or infinite as a float; leave it out for 1/sqrt(head dim)", text,
                           word));
      }
      if (error != std::errc() || end != number.data() + number.size()) {
        refuse(fmt::format("problem '{}': '{}' needs a number after 'scale'", text, word));
      }
    } else if (!parse_number_word(word)) {
      refuse(fmt::format("problem '{}': does not understand '{}'; known words: {}", text, word, kKnownWords));
    }
  }
  // Kept within int so that validate(), not this conversion, judges them.
  problem.head_dim = static_cast<int>(std::clamp<std::int64_t>(head_dim, -1, 1 << 30));
  problem.alignment = static_cast<int>(std::clamp<std::int64_t>(alignment, -1, 1 << 30));
  if (!seen.contains("key heads")) problem.heads_kv = problem.heads_q;
  if (!seen.contains("key length")) problem.seq_kv = problem.seq_q;
  if (!seen.contains("scale")) problem.softmax_scale = default_softmax_scale(problem.head_dim);
  for (const std::string_view word : mask_words) {
    if (apply_mask_word(word, &problem)) continue;
    refuse(fmt::format("problem '{}': '{}' needs {}", text, word,
                       word.starts_with(kWindowWord)
                           ? "the form window=LEFT,RIGHT or window=LEFT,RIGHT@OFFSET; a side is a "
                             "number of keys, or 'open'"
                           : "a whole number after the '@'"));
  }
  return problem;
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

std::string_view to_string(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }
std::string_view to_string(DataType dtype) { return facts_of(dtype).name; }
std::string_view to_string(Layout layout) { return layout == Layout::bshd ? "bshd" : "bhsd"; }

std::string_view to_string(MaskKind mask) {
  switch (mask) {
    case MaskKind::none:
      return "none";
    case MaskKind::causal:
      return "causal";
    case MaskKind::window:
      return "window";
  }
  return {};
}

std::string_view class_words(MaskKind mask) {
  switch (mask) {
    case MaskKind::none:
      return {};
    case MaskKind::causal:
      return " causal";
    case MaskKind::window:
      return " window";
  }
  return {};
}

}  // namespace attune
