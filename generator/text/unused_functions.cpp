#include "generator/text/unused_functions.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace attune {
namespace {

constexpr std::string_view kFolders[] = {"primitives/", "attention/"};

bool is_offered(std::string_view file) {
  return std::any_of(std::begin(kFolders), std::end(kFolders),
                     [&](std::string_view folder) { return file.starts_with(folder); });
}

using Words = std::unordered_set<std::string>;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// A line without its comment and without what its string literals say.
std::string code_of(std::string_view line) {
  // Most lines have neither.
  const std::size_t plain = std::min({line.find('"'), line.find("//"), line.size()});
  std::string code(line.substr(0, plain));
  bool quoted = false;
  for (std::size_t i = plain; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
      code += '"';
    } else if (!quoted && line.substr(i, 2) == "//") {
      break;
    } else if (!quoted) {
      code += line[i];
    }
  }
  code.erase(code.find_last_not_of(" \t") + 1);
  return code;
}

void add_words(const std::string& code, Words* words) {
  for (std::size_t i = 0; i < code.size();) {
    std::size_t end = i;
    while (end < code.size() && is_word(code[end])) ++end;
    if (end > i) words->insert(code.substr(i, end - i));
    i = std::max(end, i + 1);
  }
}

std::string last_word(std::string_view code) {
  std::size_t end = code.size();
  while (end > 0 && !is_word(code[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_word(code[begin - 1])) --begin;
  return std::string(code.substr(begin, end - begin));
}

// What a declaration declares; nothing for one that stays in any case.
std::string declared_name(std::string_view code) {
  constexpr std::string_view kTemplate = "template <", kUsing = "using ";
  if (code.starts_with(kTemplate)) code.remove_prefix(code.find('>') + 1);
  code.remove_prefix(std::min(code.find_first_not_of(' '), code.size()));
  for (const std::string_view stays : {"#", "extern ", "static_assert"}) {
    if (code.starts_with(stays)) return {};
  }
  if (code.starts_with(kUsing)) return last_word(code.substr(0, code.find('=')));
  if (code.starts_with("enum class ")) return last_word(code.substr(0, code.find(':')));
  if (code.starts_with("struct ")) return last_word(code.substr(0, code.find('{')));
  return last_word(code.substr(0, code.find_first_of("(=;")));
}

struct Declaration {
  std::size_t begin = 0, end = 0;  // lines
  std::string name, code;
  bool kept = false;
};

// A comment and the declarations that it is about.
struct Group {
  bool after_blank = false;
  std::size_t begin = 0, comment_end = 0;  // lines of the comment
  std::vector<Declaration> declarations;
};

class OfferedLines {
 public:
  explicit OfferedLines(const std::vector<std::string>& lines) : lines_(lines) {}

  // The lines from `begin` that are one stretch of offered.
  void add(std::size_t begin, std::size_t end) {
    bool blank = false, open = false;
    for (std::size_t i = begin; i < end;) {
      const std::string& line = lines_[i];
      if (line.empty()) {
        blank = true;
        open = false;
        ++i;
        continue;
      }
      const bool comment = line.starts_with("//");
      if (!open || (comment && !groups_.back().declarations.empty())) {
        groups_.push_back({blank, i, i, {}});
        blank = false;
        open = true;
      }
      if (comment) {
        groups_.back().comment_end = ++i;
      } else {
        groups_.back().declarations.push_back(declaration_at(i, end));
        i = groups_.back().declarations.back().end;
      }
    }
  }

  // Keeps what these words need, and what that needs.
  void keep(Words words) {
    for (bool grown = true; grown;) {
      grown = false;
      for (Group& group : groups_) {
        for (Declaration& declaration : group.declarations) {
          if (declaration.kept || (!declaration.name.empty() && !words.contains(declaration.name))) continue;
          declaration.kept = grown = true;
          add_words(declaration.code, &words);
        }
      }
    }
  }

  const std::vector<Group>& groups() const { return groups_; }

 private:
  // To the line at which all brackets are closed and a statement ends.
  Declaration declaration_at(std::size_t begin, std::size_t end) const {
    Declaration declaration{begin, begin, {}, {}, false};
    int depth = 0;
    while (declaration.end < end) {
      const std::string code = code_of(lines_[declaration.end++]);
      declaration.code += code + ' ';
      for (const char c : code) depth += (c == '{' || c == '(') - (c == '}' || c == ')');
      if (depth == 0 && (code.ends_with(';') || code.ends_with('}') || code.starts_with('#'))) break;
    }
    declaration.name = declared_name(declaration.code);
    return declaration;
  }

  const std::vector<std::string>& lines_;
  std::vector<Group> groups_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

void drop_unused_functions(RenderedText* rendered) {
  const std::vector<std::string> lines = lines_of(rendered->text);
  const auto is_offered_line = [&](std::size_t i) { return is_offered(rendered->lines[i].file); };
  OfferedLines offered(lines);
  Words words;
  for (std::size_t i = 0; i < lines.size();) {
    std::size_t end = i;
    while (end < lines.size() && is_offered_line(end)) ++end;
    if (end > i) {
      offered.add(i, end);
      i = end;
    } else {
      add_words(code_of(lines[i++]), &words);
    }
  }
  offered.keep(std::move(words));

  RenderedText kept;
  const auto put = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      kept.text += lines[i] + '\n';
      kept.lines.push_back(rendered->lines[i]);
    }
  };
  bool blank = true;
  auto group = offered.groups().begin();
  for (std::size_t i = 0; i < lines.size();) {
    if (!is_offered_line(i)) {
      put(i, i + 1);
      blank = lines[i++].empty();
      continue;
    }
    const auto is_kept = [](const Declaration& declaration) { return declaration.kept; };
    std::size_t end = i;
    while (end < lines.size() && is_offered_line(end)) ++end;
    for (; group != offered.groups().end() && group->begin < end; ++group) {
      const std::vector<Declaration>& all = group->declarations;
      if (!all.empty() && std::none_of(all.begin(), all.end(), is_kept)) continue;
      if (group->after_blank && !blank) put(group->begin - 1, group->begin);
      put(group->begin, group->comment_end);
      for (const Declaration& declaration : all) {
        if (declaration.kept) put(declaration.begin, declaration.end);
      }
      blank = false;
    }
    i = end;
  }
  *rendered = std::move(kept);
}

}  // namespace attune
