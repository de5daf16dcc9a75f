#include "tuner/cli/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace attune::cli {
namespace {

constexpr std::size_t kMostColumns = 100, kFewestColumns = 60;
constexpr std::size_t kDescription = 30;  // where CLI11 begins the description of a flag or a verb

// The last space that a line can be broken at before `end`, outside of quotation marks, and behind `begin`; npos if
// there is none.
std::size_t break_before(std::string_view line, std::size_t begin, std::size_t end, bool quotes) {
  std::size_t found = std::string_view::npos;
  bool quoted = false;
  for (std::size_t i = begin; i < line.size() && (i <= end || found == std::string_view::npos); ++i) {
    if (quotes && line[i] == '"') quoted = !quoted;
    if (line[i] == ' ' && !quoted) found = i;
  }
  return found;
}

void add_wrapped(std::string& text, std::string_view line, std::size_t columns, std::size_t indent, bool command) {
  const std::string_view mark = command ? " \\" : "";
  const std::string margin(indent, ' ');
  std::string rest(line);
  std::size_t begin = std::max(indent, rest.find_first_not_of(' '));
  while (rest.size() > columns) {
    const std::size_t at = break_before(rest, begin, columns - mark.size(), command);
    if (at == std::string_view::npos) break;
    text.append(rest, 0, at).append(mark).append("\n");
    rest = margin + rest.substr(at + 1);
    begin = indent;
  }
  text.append(rest).append("\n");
}

// Where what does not fit goes on.
std::size_t indent_of(std::string_view line) {
  if (!line.starts_with("  ")) return 0;
  const bool described = line.size() > kDescription && line[kDescription - 1] == ' ' && line[kDescription] != ' ';
  return described ? kDescription : 4;
}

}  // namespace

std::string wrapped_help(const std::string& help, std::size_t columns) {
  std::string text;
  bool examples = false;
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    const std::string_view line(help.data() + at, end - at);
    at = end + 1;
    examples = line == "Example:" || (examples && line.starts_with("  "));
    if (line.empty()) {
      text += "\n";
    } else {
      const bool command = examples && line.starts_with("  ");
      add_wrapped(text, line, columns, command ? 6 : indent_of(line), command);
    }
  }
  return text;
}

std::size_t help_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMostColumns;
  return std::clamp<std::size_t>(size.ws_col, kFewestColumns, kMostColumns);
}

}  // namespace attune::cli
