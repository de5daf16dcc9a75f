#include "generator/text/source_layout.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {
namespace {

constexpr std::size_t kIndentOfBody = 2, kIndentOfContinuation = 4;

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}
bool is_long(std::string_view line) { return columns_of(line) > kSourceColumns; }

std::size_t indent_of(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }
std::string indented(std::size_t indent, std::string_view text) { return std::string(indent, ' ') + std::string(text); }

// Whether a line is a comment whose words may be moved: `// text`. One that is indented further, a list's next point
// and a mark (`// #region`) begin something of their own.
bool is_filled_comment(std::string_view line) {
  line.remove_prefix(indent_of(line));
  return line.starts_with("// ") && line.size() > 3 && line[3] != ' ' && line[3] != '#';
}
bool begins_point(std::string_view line) {
  line.remove_prefix(indent_of(line));
  return line.starts_with("// - ");
}

std::vector<std::string> filled_comment(std::size_t indent, std::string_view text) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > kSourceColumns) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += line.empty() ? indented(indent, "// ") : " ";
    line += word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

// The characters of a line of code that are no text of a string literal, with how deep in brackets each stands; < and >
// count as brackets where they stand as those of templates do, without a blank before.
class CodeLine {
 public:
  explicit CodeLine(std::string_view code) : code_(code), depth_(code.size(), 0), quoted_(code.size(), false) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < code.size(); ++i) {
      const char c = code[i], before = i == 0 ? ' ' : code[i - 1], behind = i + 1 < code.size() ? code[i + 1] : ' ';
      if (!quoted && code.substr(i, 2) == "//") {
        comment_ = i;
        break;
      }
      const bool closes = c == ')' || c == ']' || c == '}' || (c == '>' && closes_arguments(i, before));
      const bool opens = c == '(' || c == '[' || c == '{' || (c == '<' && opens_arguments(i, before, behind));
      if (!quoted && closes) --depth;
      depth_[i] = depth;
      quoted_[i] = quoted || c == '"';
      if (quoted && c == '\\') {
        if (++i < code.size()) depth_[i] = depth, quoted_[i] = true;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && opens) {
        ++depth;
      }
    }
  }

  int depth(std::size_t i) const { return depth_[i]; }
  bool is_quoted(std::size_t i) const { return quoted_[i]; }
  std::optional<std::size_t> comment() const { return comment_; }  // where a comment behind the code begins

  // Where `text` stands next, outside of literals and of all brackets.
  std::size_t find_outside(std::string_view text, std::size_t from) const {
    for (std::size_t i = code_.find(text, from); i != std::string_view::npos; i = code_.find(text, i + 1)) {
      if (!quoted_[i] && depth_[i] == 0) return i;
    }
    return std::string_view::npos;
  }

 private:
  bool closes_arguments(std::size_t i, char before) const {
    const bool shift = before == '>' && i > 1 && code_[i - 2] == ' ';
    return before != ' ' && before != '-' && !shift;
  }
  bool opens_arguments(std::size_t i, char before, char behind) const {
    if (code_.substr(0, i).ends_with("template ")) return true;
    return before != ' ' && before != '<' && behind != ' ' && behind != '<' && behind != '=';
  }

  std::string_view code_;
  std::vector<int> depth_;
  std::vector<bool> quoted_;
  std::optional<std::size_t> comment_;
};

// A way to break a line: what goes to the next line begins at `at`.
struct Break {
  std::size_t at = 0;
  int cost = 0;
};

// How little one likes to break behind, or before, an operator, in brackets of the same depth.
struct Operator {
  std::string_view text;
  bool before;
  int cost;
};
constexpr Operator kOperators[] = {{") : ", true, -2}, {", ", false, 0},   {"; ", false, 0},   {" && ", false, 2},
                                   {" || ", false, 2}, {" ? ", true, 4},   {" : ", true, 4},   {" + ", false, 6},
                                   {" - ", false, 6},  {" | ", false, 6},  {" ^ ", false, 6},  {" * ", false, 8},
                                   {" / ", false, 8},  {" = ", false, 25}, {" += ", false, 25}};
constexpr int kCostOfDepth = 20;

std::optional<Break> best_break(std::string_view code) {
  const CodeLine line(code);
  const std::size_t indent = indent_of(code);
  std::optional<Break> best;
  for (const Operator& each : kOperators) {
    for (std::size_t i = code.find(each.text, indent); i != std::string_view::npos; i = code.find(each.text, i + 1)) {
      if (line.is_quoted(i)) continue;
      // What stays ends with the operator, or before the blank in front of it.
      const std::size_t blank = each.before ? code.find(' ', i) : i + each.text.size() - 1;
      if (columns_of(code.substr(0, blank)) > kSourceColumns) break;
      const int cost = each.cost + kCostOfDepth * line.depth(blank);
      if (blank < indent + 2 * kIndentOfContinuation || blank + 1 >= code.size()) continue;
      if (!best || cost < best->cost || (cost == best->cost && blank + 1 > best->at)) best = Break{blank + 1, cost};
    }
  }
  return best;
}

constexpr std::string_view kMembers = ": ";  // of a constructor, below which the next ones stand
bool begins_members(std::string_view code) { return code.substr(indent_of(code)).starts_with(kMembers); }

void break_code(std::string code, std::size_t indent_of_rest, std::vector<std::string>* lines) {
  while (is_long(code)) {
    const std::optional<Break> found = best_break(code);
    if (!found) break;
    lines->push_back(code.substr(0, found->at - 1));
    code = indented(indent_of_rest, std::string_view(code).substr(found->at));
    if (begins_members(code)) indent_of_rest += kMembers.size();
  }
  lines->push_back(std::move(code));
}

void add_code(std::string_view code, std::vector<std::string>* lines);

// `extern "C" __global__ ... __launch_bounds__(...) name(...)`, from the name on, in a line of its own; false for a
// line that is none.
bool add_kernel_head(std::string_view code, std::vector<std::string>* lines) {
  if (!code.starts_with("extern ")) return false;
  const std::size_t bounds = CodeLine(code).find_outside(") ", 0);
  if (bounds == std::string_view::npos || code.find('(', bounds) == std::string_view::npos) return false;
  lines->emplace_back(code.substr(0, bounds + 1));
  break_code(indented(kIndentOfContinuation, code.substr(bounds + 2)), 2 * kIndentOfContinuation, lines);
  return true;
}

// `head { statement; statement; }` as lines of their own; false for a line that is none.
bool add_body(std::string_view code, std::vector<std::string>* lines) {
  const CodeLine line(code);
  const std::size_t indent = indent_of(code), open = line.find_outside(" { ", indent);
  if (open == std::string_view::npos) return false;
  const std::string_view head = code.substr(0, open);
  if (head.ends_with('=') || head.ends_with("return") || head.ends_with(',')) return false;
  const std::size_t close = code.rfind('}');
  if (close == std::string_view::npos || close < open + 3 || line.depth(close) != 0) return false;
  add_code(indented(0, head) + " {", lines);
  for (std::size_t begin = open + 3; begin < close;) {
    std::size_t end = begin;
    while (end < close && !(code[end] == ';' && !line.is_quoted(end) && line.depth(end) == 1)) ++end;
    end = std::min(end + 1, close);
    std::string_view statement = code.substr(begin, end - begin);
    statement.remove_prefix(indent_of(statement));
    while (statement.ends_with(' ')) statement.remove_suffix(1);
    if (!statement.empty()) add_code(indented(indent + kIndentOfBody, statement), lines);
    begin = end;
  }
  lines->push_back(indented(indent, code.substr(close)));
  return true;
}

// `for (...) statement` in two lines; false for a line that is none.
bool add_statement(std::string_view code, std::vector<std::string>* lines) {
  const std::size_t indent = indent_of(code);
  const std::string_view text = code.substr(indent);
  if (!text.starts_with("for (") && !text.starts_with("if (") && !text.starts_with("while (")) return false;
  const CodeLine line(code);
  const std::size_t close = line.find_outside(") ", indent);
  if (close == std::string_view::npos || code.substr(close + 2).starts_with("{")) return false;
  add_code(code.substr(0, close + 1), lines);
  add_code(indented(indent + kIndentOfBody, code.substr(close + 2)), lines);
  return true;
}

void add_code(std::string_view code, std::vector<std::string>* lines) {
  if (!is_long(code)) {
    lines->emplace_back(code);
    return;
  }
  if (add_body(code, lines) || add_statement(code, lines) || add_kernel_head(code, lines)) return;
  break_code(std::string(code), indent_of(code) + kIndentOfContinuation, lines);
}

// The lines that one of code becomes. continued: it continues the statement of the line before it.
std::vector<std::string> broken(std::string_view line, bool continued) {
  std::vector<std::string> lines;
  const std::size_t indent = indent_of(line);
  const std::string_view text = line.substr(indent);
  if (!is_long(line) || text.starts_with('#') || text.starts_with("//") || line.ends_with('\\'))
    return {std::string(line)};
  const CodeLine code(line);
  if (code.comment()) {
    lines = filled_comment(indent, line.substr(*code.comment() + 2));
    line = line.substr(0, *code.comment());
    while (line.ends_with(' ')) line.remove_suffix(1);
  }
  if (continued) {
    break_code(std::string(line), indent + (begins_members(line) ? kMembers.size() : 0), &lines);
  } else {
    add_code(line, &lines);
  }
  return lines;
}

class SourceLayout {
 public:
  explicit SourceLayout(const RenderedText& from) : from_(from) {
    for (std::size_t begin = 0; begin < from.text.size();) {
      const std::size_t end = std::min(from.text.find('\n', begin), from.text.size());
      lines_.emplace_back(from.text, begin, end - begin);
      begin = end + 1;
    }
  }

  RenderedText laid_out() {
    for (std::size_t i = 0; i < lines_.size();) {
      if (begins_struct(i) && !is_open_) put("", i);
      i = is_filled_comment(lines_[i]) ? put_paragraph(i) : put_line(i);
    }
    return std::move(to_);
  }

 private:
  // Whether a struct begins there, or the comment or the template's line above it.
  bool begins_struct(std::size_t i) const {
    const std::string_view before = i == 0 ? std::string_view() : std::string_view(lines_[i - 1]);
    if (before.starts_with("//") || (before.starts_with("template <") && before.ends_with('>'))) return false;
    while (i < lines_.size() && lines_[i].starts_with("//")) ++i;
    if (i < lines_.size() && lines_[i].starts_with("template <") && !lines_[i].ends_with('{')) ++i;
    return i < lines_.size() && lines_[i].starts_with("struct ") && lines_[i].ends_with('{');
  }

  std::size_t put_paragraph(std::size_t begin) {
    const std::size_t indent = indent_of(lines_[begin]);
    std::size_t end = begin + 1;
    // What comes from another template is a comment of its own.
    while (end < lines_.size() && is_filled_comment(lines_[end]) && indent_of(lines_[end]) == indent &&
           !begins_point(lines_[end]) && from_.lines[end].file == from_.lines[begin].file)
      ++end;
    const bool fits = std::none_of(lines_.begin() + static_cast<std::ptrdiff_t>(begin),
                                   lines_.begin() + static_cast<std::ptrdiff_t>(end), is_long);
    if (fits) {
      for (std::size_t i = begin; i < end; ++i) put(lines_[i], i);
      return end;
    }
    std::string text;
    for (std::size_t i = begin; i < end; ++i) text += lines_[i].substr(indent + 3) + ' ';
    for (const std::string& line : filled_comment(indent, text)) put(line, begin);
    return end;
  }

  std::size_t put_line(std::size_t i) {
    if (lines_[i].empty()) {
      if (!is_open_) put("", i);
      return i + 1;
    }
    const std::size_t end = end_of_statement(i);
    std::string statement = lines_[i];
    for (std::size_t next = i + 1; next < end; ++next)
      statement += (statement.ends_with('(') ? "" : " ") + lines_[next].substr(indent_of(lines_[next]));
    for (const std::string& line : broken(statement, is_continued(i))) put(line, i);
    return end;
  }

  // Of a line that is too long with those that continue it: where these were broken before fits it no more.
  std::size_t end_of_statement(std::size_t i) const {
    const auto is_plain = [&](const std::string& line) {
      return !CodeLine(line).comment() && !line.ends_with('\\') && line.find('"') == std::string::npos;
    };
    std::size_t end = i + 1;
    if (!is_long(lines_[i]) || !is_plain(lines_[i])) return end;
    while (end < lines_.size() && is_continued(end) && is_plain(lines_[end])) ++end;
    return end;
  }

  // Whether the statement of the line before it goes on.
  bool is_continued(std::size_t i) const {
    if (i == 0) return false;
    const std::string& before = lines_[i - 1];
    const std::string_view code = std::string_view(before).substr(indent_of(before));
    return code.ends_with(',') || code.ends_with('(') || lines_[i].find(": ") == indent_of(lines_[i]);
  }

  void put(const std::string& line, std::size_t from) {
    to_.text += line + '\n';
    to_.lines.push_back(from_.lines[from]);
    is_open_ = line.empty();
  }

  const RenderedText& from_;
  std::vector<std::string> lines_;
  RenderedText to_;
  bool is_open_ = false;  // whether the last line is blank
};

}  // namespace

void lay_out(RenderedText* rendered) { *rendered = SourceLayout(*rendered).laid_out(); }

}  // namespace attune
