#include "generator/problem/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/operand_shape.h"

namespace attune {
namespace {
constexpr std::int64_t kLengthLimit = (std::int64_t{1} << 31) - 1024;  // rounding up to a tile must stay within int32
constexpr std::int64_t kHeadsLimit = std::int64_t{1} << 31;
constexpr int kMaxHeadDim = 256;
// Of each tensor: far beyond any GPU's address space, and its bytes in fp32 are far from where an int64 ends.
constexpr std::int64_t kElementsLimit = std::int64_t{1} << 50;
constexpr float kLog2E = 1.44269504088896340736f;

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

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

constexpr std::string_view kWindow = "window=", kOpen = "open";

// a - b, or 0 where that is no int64, of offsets that validate() refuses.
std::int64_t difference(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? 0 : result;
}

// From the diagonal that is aligned bottom right, if it lies in the window; else from the window's last one, or its
// first where it has no last.
std::string window_words(const AttentionProblem& problem) {
  const std::int64_t first = problem.first_offset, last = problem.mask_offset, aligned = bottom_right_offset(problem);
  const bool is_open = last == kOpenDiagonal, holds = first <= aligned && aligned <= last;
  const std::int64_t diagonal = holds ? aligned : is_open ? first : last;
  return fmt::format(" {}{},{}{}", kWindow, difference(diagonal, first),
                     is_open ? std::string(kOpen) : std::to_string(difference(last, diagonal)),
                     holds ? "" : fmt::format("@{}", diagonal));
}

// A side of a window: digits, or -1 for all.
std::optional<std::int64_t> parse_side(std::string_view text) {
  std::int64_t keys = 0;
  if (text == kOpen) return -1;
  if (text.empty() || text.front() == '-' || !parse_number(text, &keys)) return std::nullopt;
  return keys;
}

bool apply_window_word(std::string_view word, AttentionProblem* problem) {
  word.remove_prefix(kWindow.size());
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
std::string mask_words(const AttentionProblem& problem) {
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
  return word == "causal" || word == "causal-top-left" || word.starts_with("causal@") || word.starts_with(kWindow);
}

constexpr std::string_view kKnownWords =
    "forward, backward, fp16, bf16, bN (batch), hqN and hkvN (heads), sqN and skvN (lengths), dN (head dim), causal, "
    "causal-top-left, causal@OFFSET, window=LEFT,RIGHT, window=LEFT,RIGHT@OFFSET, scaleX, bshd, bhsd, alignN, "
    "deterministic";
}  // namespace

float default_softmax_scale(int head_dim) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }

AttentionProblem make_problem(DataType dtype, std::int64_t batch, std::int64_t heads, std::int64_t seq, int head_dim,
                              MaskKind mask) {
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.batch = batch;
  problem.heads_q = problem.heads_kv = heads;
  problem.seq_q = problem.seq_kv = seq;
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.softmax_scale = default_softmax_scale(head_dim);
  return problem;
}

AttentionProblem forward_of(AttentionProblem problem) {
  problem.pass = Pass::forward;
  problem.deterministic = false;  // every forward kernel is
  return problem;
}

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
      invalid(
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
  if (words.empty()) invalid("an empty problem text; write for example 'forward bf16 b2 hq16 sq4096 d128 causal'");
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
      once(word.starts_with(kWindow) ? "window" : "mask", word);
      mask_words.push_back(word);
    } else if (word.starts_with("scale")) {
      once("scale", word);
      const std::string_view number = word.substr(5);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), problem.softmax_scale);
      if (error == std::errc::result_out_of_range && end == number.data() + number.size()) {
        invalid(fmt::format("problem '{}': '{}' is 0 or infinite as a float; leave it out for 1/sqrt(head dim)", text,
                            word));
      }
      if (error != std::errc() || end != number.data() + number.size()) {
        invalid(fmt::format("problem '{}': '{}' needs a number after 'scale'", text, word));
      }
    } else if (!parse_number_word(word)) {
      invalid(fmt::format("problem '{}': does not understand '{}'; known words: {}", text, word, kKnownWords));
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
    invalid(fmt::format("problem '{}': '{}' needs {}", text, word,
                        word.starts_with(kWindow)
                            ? "the form window=LEFT,RIGHT or window=LEFT,RIGHT@OFFSET; a side is a "
                              "number of keys, or 'open'"
                            : "a whole number after the '@'"));
  }
  return problem;
}

void copy_mask(const AttentionProblem& from, AttentionProblem* to) {
  to->mask = from.mask;
  to->mask_offset = from.mask_offset;
  to->first_offset = from.first_offset;
}

bool apply_mask_word(std::string_view word, AttentionProblem* problem) {
  if (!is_mask_word(word)) return false;
  if (word.starts_with(kWindow)) return apply_window_word(word, problem);
  std::int64_t offset = 0;
  if (word == "causal") {
    offset = bottom_right_offset(*problem);
  } else if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
    if (!parse_number(word.substr(at + 1), &offset)) return false;
  }
  if (problem->mask == MaskKind::none) {
    problem->mask = MaskKind::causal;
    problem->mask_offset = offset;
  } else {
    hide_outside(-kOpenDiagonal, offset, problem);
  }
  return true;
}

void hide_outside(std::int64_t first, std::int64_t last, AttentionProblem* problem) {
  if (problem->mask == MaskKind::window) first = std::max(first, problem->first_offset);
  if (problem->mask != MaskKind::none) last = std::min(last, problem->mask_offset);
  // A side that hides nothing is open.
  const bool from_first_key = first <= -kOpenDiagonal || first <= difference(1, problem->seq_q);
  if (last >= difference(problem->seq_kv, 1)) last = kOpenDiagonal;
  problem->mask = !from_first_key ? MaskKind::window : last >= kOpenDiagonal ? MaskKind::none : MaskKind::causal;
  problem->first_offset = from_first_key ? 0 : first;
  problem->mask_offset = problem->mask == MaskKind::none ? 0 : last;
}

void apply_window(std::int64_t left, std::int64_t right, std::int64_t diagonal, AttentionProblem* problem) {
  // Beyond what any valid problem has, nothing is computed with.
  diagonal = std::clamp(diagonal, -kOpenDiagonal / 2, kOpenDiagonal / 2);
  left = std::min(left, kOpenDiagonal / 2 - 1);
  right = std::min(right, kOpenDiagonal / 2 - 1);
  hide_outside(left < 0 ? -kOpenDiagonal : diagonal - left, right < 0 ? kOpenDiagonal : diagonal + right, problem);
}

std::int64_t bottom_right_offset(const AttentionProblem& problem) { return difference(problem.seq_kv, problem.seq_q); }

void validate(const AttentionProblem& problem) {
  if (problem.head_dim < 8 || problem.head_dim > kMaxHeadDim || problem.head_dim % 8 != 0) {
    invalid(fmt::format("head dim {}: must be a multiple of 8 from 8 to {}; pad the last dimension with zeros",
                        problem.head_dim, kMaxHeadDim));
  }
  const struct {
    const char* name;
    std::int64_t value;
  } sizes[] = {{"batch", problem.batch},
               {"query heads", problem.heads_q},
               {"key/value heads", problem.heads_kv},
               {"query length", problem.seq_q},
               {"key length", problem.seq_kv}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) invalid(fmt::format("{} {}: must be at least 1", name, value));
  }
  for (const auto& [name, value] : {sizes[3], sizes[4]}) {
    if (value >= kLengthLimit) invalid(fmt::format("{} {}: must be below {}", name, value, kLengthLimit));
  }
  if (problem.heads_q % problem.heads_kv != 0) {
    invalid(
        fmt::format("{} query heads are not divisible by {} key/value heads; each key/value head serves the same "
                    "number of query heads",
                    problem.heads_q, problem.heads_kv));
  }
  if (problem.batch >= kHeadsLimit || problem.heads_q >= kHeadsLimit ||
      problem.batch * problem.heads_q >= kHeadsLimit) {
    invalid(fmt::format("batch {} times query heads {}: must be below {}; split the batch", problem.batch,
                        problem.heads_q, kHeadsLimit));
  }
  const std::int64_t longest = std::max(problem.seq_q, problem.seq_kv);
  if (problem.batch * problem.heads_q >= kElementsLimit / (longest * problem.head_dim)) {
    invalid(fmt::format(
        "batch {} times {} query heads times length {} times head dim {} is too large: tensors must have fewer than "
        "{} elements; split the batch",
        problem.batch, problem.heads_q, longest, problem.head_dim, kElementsLimit));
  }
  // Kernels multiply it by log2(e), in fp32.
  if (!std::isfinite(problem.softmax_scale * kLog2E) || problem.softmax_scale <= 0) {
    invalid(fmt::format("scale {}: must be positive and finite as a float, also times log2(e)", problem.softmax_scale));
  }
  if (problem.alignment != 2 && problem.alignment != 16) {
    invalid(fmt::format("alignment {}: must be 16, or 2 for rows that start anywhere", problem.alignment));
  }
  if (problem.deterministic && problem.pass == Pass::forward) {
    invalid("deterministic: every forward kernel is, so only a backward problem takes the word; leave it out");
  }
  if (!hides_pairs(problem.mask) && problem.mask_offset != 0) {
    invalid(fmt::format("mask offset {} without a mask: must be 0, or ask for a causal mask", problem.mask_offset));
  }
  if (!hides_first_keys(problem.mask) && problem.first_offset != 0)
    invalid(fmt::format("first offset {} without a window: must be 0, or ask for a window", problem.first_offset));
  if (hides_first_keys(problem.mask) && problem.first_offset > problem.mask_offset) {
    invalid(fmt::format("a window from offset {} to {}: no query attends to any key", problem.first_offset,
                        problem.mask_offset));
  }
  if (hides_first_keys(problem.mask) &&
      (problem.first_offset <= -kLengthLimit || problem.first_offset > kLengthLimit - problem.seq_q)) {
    invalid(fmt::format("a window from offset {}: must be above {} and at most {} for query length {}",
                        problem.first_offset, -kLengthLimit, kLengthLimit - problem.seq_q, problem.seq_q));
  }
  // Kernels compute query + offset in int32.
  const bool is_open = hides_first_keys(problem.mask) && problem.mask_offset == kOpenDiagonal;
  if (!is_open && (problem.mask_offset <= -kLengthLimit || problem.mask_offset > kLengthLimit - problem.seq_q)) {
    invalid(fmt::format("mask offset {}: must be above {} and at most {} for query length {}", problem.mask_offset,
                        -kLengthLimit, kLengthLimit - problem.seq_q, problem.seq_q));
  }
}

double count_flops(const AttentionProblem& problem) {
  // Columns of the products, 2 FLOP each: Q K^T and P V; backward Q K^T, dO V^T, dV, dQ and dK.
  const bool forward = problem.pass == Pass::forward;
  const int columns =
      forward ? problem.head_dim_qk() + problem.head_dim_v() : 3 * problem.head_dim_qk() + 2 * problem.head_dim_v();
  return 2.0 * columns * static_cast<double>(count_attended_pairs(problem)) *
         static_cast<double>(problem.batch * problem.heads_q);
}

double count_bytes(const AttentionProblem& problem) {
  double bytes = 0;
  const auto add = [&](Operand operand) {
    const OperandShape shape = operand_shape(problem, operand);
    bytes += static_cast<double>(shape.all_rows()) * static_cast<double>(shape.columns) * size_of(shape.element);
  };
  for (const Operand operand : inputs_of(problem.pass)) {
    if (operand != Operand::d_lse) add(operand);  // which a call may leave out
  }
  for (const Operand operand : outputs_of(problem.pass)) add(operand);
  return bytes;
}

std::string_view to_string(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }
std::string_view to_string(DataType dtype) { return dtype == DataType::fp16 ? "fp16" : "bf16"; }
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

std::size_t AttentionProblemHash::operator()(const AttentionProblem& problem) const noexcept {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 31;
  };
  mix(static_cast<std::uint64_t>(problem.pass) | static_cast<std::uint64_t>(problem.dtype) << 8 |
      static_cast<std::uint64_t>(problem.mask) << 16 | static_cast<std::uint64_t>(problem.layout) << 24 |
      static_cast<std::uint64_t>(problem.alignment) << 32 | static_cast<std::uint64_t>(problem.deterministic) << 48);
  mix(static_cast<std::uint64_t>(problem.head_dim));
  mix(static_cast<std::uint64_t>(problem.batch));
  mix(static_cast<std::uint64_t>(problem.heads_q));
  mix(static_cast<std::uint64_t>(problem.heads_kv));
  mix(static_cast<std::uint64_t>(problem.seq_q));
  mix(static_cast<std::uint64_t>(problem.seq_kv));
  mix(static_cast<std::uint64_t>(problem.mask_offset));
  mix(static_cast<std::uint64_t>(problem.first_offset));
  const float scale = problem.softmax_scale == 0 ? 0.0f : problem.softmax_scale;  // -0 equals 0
  mix(std::bit_cast<std::uint32_t>(scale));
  return static_cast<std::size_t>(hash);
}

}  // namespace attune
