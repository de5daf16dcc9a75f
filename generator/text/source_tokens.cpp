#include "generator/text/source_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

namespace attune {
namespace {

// Those of more than one character, longer ones first: a compiler takes the longest. Those of CUDA's launches are here
// too.
constexpr std::array<std::string_view, 35> kPunctuators = {
    "%:%:", "<<<", ">>>", "<=>", "<<=", ">>=", "...", "->*", "::", ".*", "->", "++", "--", "+=", "-=", "*=", "/=", "%=",
    "^=",   "&=",  "|=",  "==",  "!=",  "<=",  ">=",  "&&",  "||", "<<", ">>", "##", "<:", ":>", "<%", "%>", "%:"};

// Directives that make tokens of other files or numbers, and names that stand for a line's number.
constexpr std::string_view kRefusedDirectives[] = {"include", "include_next", "import", "embed", "line"};
constexpr std::string_view kRefusedNames[] = {"__LINE__", "__builtin_LINE", "source_location", "assert"};
constexpr std::string_view kLiteralPrefixes[] = {"", "u8", "u", "U", "L"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Letters of other alphabets are bytes of UTF-8.
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name(char c) { return is_name_start(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
// Whether a punctuator may have it as its second character.
bool is_second(char c) {
  switch (c) {
    case ':':
    case '<':
    case '>':
    case '=':
    case '.':
    case '*':
    case '-':
    case '+':
    case '&':
    case '|':
    case '#':
    case '%':
      return true;
    default:
      return false;
  }
}
// Whether a literal may begin so: a quote, or a name that may be its prefix.
bool may_begin_literal(char c) { return c == '"' || c == '\'' || c == 'u' || c == 'U' || c == 'L' || c == 'R'; }

template <typename List>
bool holds(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// The source must be told apart by its bytes.
struct Inexact {};

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view source) { join_lines(source); }

  std::string tokens() {
    while (at_ < text_.size()) take();
    if (directive_) end_directive();
    return std::move(tokens_);
  }

 private:
  // Lines that continue behind a backslash become one, whatever stands there.
  void join_lines(std::string_view source) {
    text_.reserve(source.size());
    tokens_.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
      const std::size_t backslash = std::min(source.find('\\', i), source.size());
      text_.append(source, i, backslash - i);
      i = backslash;
      if (i == source.size()) break;
      std::size_t next = i + 1;
      while (next < source.size() && is_blank(source[next])) ++next;
      const bool ends_line = next < source.size() && source[next] == '\n';
      // Compilers differ in what they make of these blanks.
      if (ends_line && next > i + 1) throw Inexact();
      if (ends_line) {
        i = next;
      } else {
        text_ += '\\';
      }
    }
  }

  char at(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool stands(std::string_view text) const { return text_.compare(at_, text.size(), text) == 0; }

  void put(std::size_t length) {
    tokens_.append(text_, at_, length).push_back('\n');
    at_ += length;
    line_is_empty_ = false;
  }

  void take() {
    const char c = text_[at_];
    if (c == '\n') {
      ++at_;
      if (directive_) end_directive();
      line_is_empty_ = true;
    } else if (is_blank(c) || (c == '/' && (at(1) == '/' || at(1) == '*'))) {
      take_blanks();
    } else if (const std::size_t length = may_begin_literal(c) ? literal() : 0; length > 0) {
      put(length);
    } else if (is_name_start(c)) {
      take_name();
    } else if (is_digit(c) || (c == '.' && is_digit(at(1)))) {
      put(number());
    } else {
      take_punctuator();
    }
  }

  // Blanks and comments, up to the end of the line.
  void take_blanks() {
    while (at_ < text_.size()) {
      if (is_blank(text_[at_])) {
        ++at_;
      } else if (stands("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (stands("/*")) {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string::npos) throw Inexact();
        at_ = end + 2;
      } else {
        break;
      }
    }
    if (directive_ && at_ < text_.size() && text_[at_] != '\n') tokens_ += " \n";
  }

  void end_directive() {
    tokens_ += '\n';
    directive_ = names_directive_ = defines_ = false;
  }

  void take_name() {
    std::size_t length = 1;
    while (is_name(at(length))) ++length;
    const std::string_view name(text_.data() + at_, length);
    if ((name[0] == '_' || name[0] == 's' || name[0] == 'a') && holds(kRefusedNames, name)) throw Inexact();
    if (names_directive_) {
      if (holds(kRefusedDirectives, name)) throw Inexact();
      defines_ = name == "define";
      names_directive_ = false;
    } else if (directive_ && name.starts_with("__has_")) {
      throw Inexact();
    }
    put(length);
  }

  // Longer than a number: 0x1p-3, 1'000, 5.f, .5e+3 and suffixes.
  std::size_t number() const {
    std::size_t length = 1;
    for (;; ++length) {
      const char c = at(length), before = at(length - 1);
      const bool sign = (c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      const bool separator = c == '\'' && is_name(at(length + 1));
      if (!is_name(c) && c != '.' && !sign && !separator) return length;
    }
  }

  void take_punctuator() {
    if (text_[at_] == '\\' || text_[at_] == '\'' || text_[at_] == '"') throw Inexact();
    std::size_t length = 1;
    if (is_second(at(1))) {
      const auto found = std::find_if(kPunctuators.begin(), kPunctuators.end(), [&](std::string_view punctuator) {
        return punctuator[0] == text_[at_] && stands(punctuator);
      });
      if (found != kPunctuators.end()) length = found->size();
    }
    // f<::g> is f< ::g>.
    if (stands("<::") && at(3) != ':' && at(3) != '>') length = 1;
    const std::string_view punctuator = std::string_view(text_).substr(at_, length);
    const bool hash = punctuator == "#" || punctuator == "%:";
    if (hash && line_is_empty_) {
      directive_ = names_directive_ = true;
    } else if (hash && defines_) {
      throw Inexact();
    }
    put(length);
  }

  // The length of the literal that begins here, its suffix included; 0 if none does.
  std::size_t literal() const {
    for (const std::string_view prefix : kLiteralPrefixes) {
      if (!stands(prefix)) continue;
      const char quote = at(prefix.size());
      if (quote == 'R' && at(prefix.size() + 1) == '"') throw Inexact();
      if (quote != '"' && quote != '\'') continue;
      std::size_t length = prefix.size() + 1;
      for (; at(length) != quote; ++length) {
        if (at_ + length >= text_.size() || at(length) == '\n') throw Inexact();
        if (at(length) == '\\') ++length;
      }
      ++length;
      if (is_name_start(at(length))) {
        while (is_name(at(length))) ++length;
      }
      return length;
    }
    return 0;
  }

  std::string text_, tokens_;
  std::size_t at_ = 0;
  bool line_is_empty_ = true;     // but for blanks and comments
  bool directive_ = false;        // in one
  bool names_directive_ = false;  // whose name follows
  bool defines_ = false;          // a macro
};

}  // namespace

std::optional<std::string> source_tokens(std::string_view source) {
  try {
    return Tokenizer(source).tokens();
  } catch (const Inexact&) {
    return std::nullopt;
  }
}

}  // namespace attune
