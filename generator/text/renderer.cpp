#include "generator/text/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "generator/error.h"

namespace attune {
namespace {
constexpr std::string_view kDirective = "//%";
constexpr std::string_view kKnownDirectives = "include NAME, if NAME, if !NAME, else, for LIST, end, -- COMMENT";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !letter(text.front()) || text.back() == '.') return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || digit(c) || c == '.'; });
}

// A template as a tree: lines, and directives with the nodes between them and their end.
struct Node {
  enum class Kind { text, include, condition, loop };
  Kind kind = Kind::text;
  int line = 0;
  std::string_view text;    // text: the whole line. Others: the argument
  std::string_view indent;  // include: what precedes the directive
  std::vector<Node> body, otherwise;
};

class Parser {
 public:
  Parser(const std::string& name, std::string_view text) : name_(name), rest_(text) {}

  std::vector<Node> parse() {
    std::vector<Node> nodes;
    const std::optional<Directive> stop = parse_block(&nodes);
    if (stop) fail(stop->line, fmt::format("'//% {}' without an '//% if' or '//% for' before it", stop->word));
    return nodes;
  }

 private:
  struct Directive {
    std::string_view word, argument;
    int line = 0;
  };

  [[noreturn]] void fail(int line, const std::string& message) const {
    throw Error(ErrorCode::template_error, fmt::format("{}:{}: {}", name_, line, message));
  }

  // Appends nodes until the text ends (nothing is returned) or an else or end that belongs to the caller.
  std::optional<Directive> parse_block(std::vector<Node>* nodes) {
    while (!rest_.empty()) {
      const std::size_t newline = rest_.find('\n');
      const std::string_view line = rest_.substr(0, newline);
      rest_ = newline == std::string_view::npos ? std::string_view() : rest_.substr(newline + 1);
      ++line_;
      const std::string_view trimmed = trim(line);
      if (!trimmed.starts_with(kDirective)) {
        if (line.find(kDirective) != std::string_view::npos) fail(line_, "a directive must be alone on its line");
        nodes->push_back({Node::Kind::text, line_, line, {}, {}, {}});
        continue;
      }
      const Directive directive = split(trimmed.substr(kDirective.size()));
      if (directive.word == "--") continue;
      if (directive.word == "else" || directive.word == "end") {
        if (!directive.argument.empty()) {
          fail(line_,
               fmt::format("'//% {}' takes no argument, but is followed by '{}'", directive.word, directive.argument));
        }
        return directive;
      }
      const std::string_view indent = line.substr(0, line.find(kDirective));
      nodes->push_back(parse_directive(directive, indent));
    }
    return std::nullopt;
  }

  Directive split(std::string_view text) const {
    if (!text.empty() && text.front() != ' ' && text.front() != '\t') fail(line_, "'//%' must be followed by a blank");
    text = trim(text);
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    return {text.substr(0, end), trim(text.substr(end)), line_};
  }

  Node parse_directive(const Directive& directive, std::string_view indent) {
    Node node;
    node.line = directive.line;
    node.text = directive.argument;
    node.indent = indent;
    if (directive.word == "include") {
      node.kind = Node::Kind::include;
    } else if (directive.word == "if") {
      node.kind = Node::Kind::condition;
    } else if (directive.word == "for") {
      node.kind = Node::Kind::loop;
    } else {
      fail(directive.line,
           fmt::format("unknown directive '//% {}'; known directives: {}", directive.word, kKnownDirectives));
    }
    if (node.text.empty() || node.text.find_first_of(" \t") != std::string_view::npos) {
      fail(directive.line, fmt::format("'//% {}' takes one name, but is followed by '{}'", directive.word, node.text));
    }
    if (node.kind == Node::Kind::include) return node;

    std::optional<Directive> stop = parse_block(&node.body);
    if (stop && stop->word == "else") {
      if (node.kind == Node::Kind::loop) {
        fail(stop->line, fmt::format("'//% else' inside '//% for {}' of line {}", node.text, node.line));
      }
      stop = parse_block(&node.otherwise);
      if (stop && stop->word == "else") {
        fail(stop->line, fmt::format("a second '//% else' for '//% if {}' of line {}", node.text, node.line));
      }
    }
    if (!stop) fail(node.line, fmt::format("'//% {} {}' has no '//% end'", directive.word, node.text));
    return node;
  }

  const std::string& name_;
  std::string_view rest_;
  int line_ = 0;
};

class Renderer {
 public:
  Renderer(const TemplateSet& templates, const TemplateBindings& bindings)
      : templates_(templates), bindings_(bindings) {
    check_declared_once();
  }

  RenderedText render(const std::string& root) {
    const std::string* text = templates_.find(root);
    if (text == nullptr) {
      throw Error(ErrorCode::template_error, fmt::format("there is no template '{}'", root));
    }
    render_template(root, *text, "", /*live=*/true);
    check_all_used(root);
    return std::move(out_);
  }

 private:
  struct Place {
    std::string file;
    int line = 0;
  };
  struct LoopItem {
    const std::string* list;
    const std::map<std::string, std::string>* item;  // null in a body that is only checked, of an empty list
  };

  [[noreturn]] void fail(const std::string& message) const {
    std::string text = fmt::format("{}:{}: {}", places_.back().file, places_.back().line, message);
    for (std::size_t i = places_.size() - 1; i-- > 0;) {
      text += fmt::format(" (included from {}:{})", places_[i].file, places_[i].line);
    }
    throw Error(ErrorCode::template_error, text);
  }

  void check_declared_once() const {
    std::map<std::string, std::string> kinds;
    const auto declare = [&](const std::string& name, const char* kind) {
      if (!is_name(name) || name.find('.') != std::string::npos) {
        throw Error(ErrorCode::template_error, fmt::format("the {} '{}' is bound, but that is no name", kind, name));
      }
      const auto [found, inserted] = kinds.emplace(name, kind);
      if (!inserted) {
        throw Error(ErrorCode::template_error,
                    fmt::format("'{}' is bound both as {} and as {}", name, found->second, kind));
      }
    };
    for (const auto& [name, value] : bindings_.values) declare(name, "value");
    for (const auto& [name, value] : bindings_.conditions) declare(name, "condition");
    for (const auto& [name, value] : bindings_.lists) declare(name, "list");
  }

  void check_all_used(const std::string& root) const {
    const auto check = [&](const std::string& name, const char* kind) {
      if (used_.contains(name)) return;
      throw Error(ErrorCode::template_error,
                  fmt::format("{}: the {} '{}' is bound, but neither this template nor what it includes uses it", root,
                              kind, name));
    };
    for (const auto& [name, value] : bindings_.values) check(name, "value");
    for (const auto& [name, value] : bindings_.conditions) check(name, "condition");
    for (const auto& [name, items] : bindings_.lists) {
      check(name, "list");
      for (const auto& item : items) {
        for (const auto& [key, value] : item) check(name + "." + key, "list item's key");
      }
    }
  }

  // `live` is false in a branch that is not taken: it is checked, and what it names counts as used, but it leaves no
  // text.
  void render_template(const std::string& name, std::string_view text, const std::string& indent, bool live) {
    places_.push_back({name, 1});
    render_nodes(Parser(name, text).parse(), indent, live);
    places_.pop_back();
  }

  void render_nodes(const std::vector<Node>& nodes, const std::string& indent, bool live) {
    for (const Node& node : nodes) {
      places_.back().line = node.line;
      switch (node.kind) {
        case Node::Kind::text:
          render_line(node, indent, live);
          break;
        case Node::Kind::include:
          render_include(node, indent, live);
          break;
        case Node::Kind::condition:
          render_condition(node, indent, live);
          break;
        case Node::Kind::loop:
          render_loop(node, indent, live);
          break;
      }
    }
  }

  void render_line(const Node& node, const std::string& indent, bool live) {
    const std::string line = substitute(node.text);
    if (!live) return;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('\n', begin), line.size());
      const std::string_view part = std::string_view(line).substr(begin, end - begin);
      if (!trim(part).empty()) out_.text += indent;
      out_.text += part;
      out_.text += '\n';
      out_.lines.push_back({places_.back().file, node.line});
      begin = end + 1;
    }
  }

  void render_include(const Node& node, const std::string& indent, bool live) {
    const std::string name = substitute(node.text);
    const std::string* text = templates_.find(name);
    if (text == nullptr) fail(fmt::format("there is no template '{}' to include", name));
    if (std::any_of(places_.begin(), places_.end(), [&](const Place& place) { return place.file == name; })) {
      fail(fmt::format("'{}' includes itself", name));
    }
    if (live && !included_.insert(name).second) fail(fmt::format("'{}' is included a second time", name));
    render_template(name, *text, indent + std::string(node.indent), live);
  }

  void render_condition(const Node& node, const std::string& indent, bool live) {
    std::string name = substitute(node.text);
    const bool negated = name.starts_with('!');
    if (negated) name.erase(0, 1);
    const auto found = bindings_.conditions.find(name);
    if (found == bindings_.conditions.end()) fail_undeclared("condition", name);
    used_.insert(name);
    const bool taken = found->second != negated;
    render_nodes(node.body, indent, live && taken);
    render_nodes(node.otherwise, indent, live && !taken);
  }

  void render_loop(const Node& node, const std::string& indent, bool live) {
    const std::string name = substitute(node.text);
    const auto found = bindings_.lists.find(name);
    if (found == bindings_.lists.end()) fail_undeclared("list", name);
    if (std::any_of(loops_.begin(), loops_.end(), [&](const LoopItem& loop) { return *loop.list == name; })) {
      fail(fmt::format("a loop over '{}' inside a loop over it", name));
    }
    used_.insert(name);
    if (found->second.empty()) {
      loops_.push_back({&found->first, nullptr});
      render_nodes(node.body, indent, false);
      loops_.pop_back();
    }
    for (const auto& item : found->second) {
      loops_.push_back({&found->first, &item});
      render_nodes(node.body, indent, live);
      loops_.pop_back();
    }
  }

  // A value of several lines continues below the column where it began; a line comment stays one.
  static std::string continuation_of(std::string_view before) {
    const std::size_t code = std::min(before.find_first_not_of(" \t"), before.size());
    std::string prefix(before.substr(0, code));
    const bool comment = before.substr(code).starts_with("//");
    if (comment) prefix += "//";
    for (const char c : before.substr(prefix.size())) {
      if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) prefix += ' ';  // one blank for each UTF-8 code point
    }
    return prefix;
  }

  std::string substitute(std::string_view text) {
    std::string result;
    std::string_view line = text;
    for (std::size_t begin = line.find("${"); begin != std::string_view::npos; begin = line.find("${")) {
      result += line.substr(0, begin);
      const std::size_t end = line.find('}', begin);
      if (end == std::string_view::npos) fail(fmt::format("'{}' has no closing brace", line.substr(begin)));
      const std::string_view name = line.substr(begin + 2, end - begin - 2);
      if (!is_name(name)) fail(fmt::format("'${{{}}}' does not hold a name", name));
      const std::string& value = value_of(std::string(name));
      const std::string continuation = value.find('\n') == std::string::npos ? "" : continuation_of(result);
      for (const char c : value) {
        result += c;
        if (c == '\n') result += continuation;
      }
      line.remove_prefix(end + 1);
    }
    result += line;
    return result;
  }

  const std::string& value_of(const std::string& name) {
    const std::size_t dot = name.find('.');
    if (dot != std::string::npos) return item_value(name.substr(0, dot), name.substr(dot + 1));
    const auto found = bindings_.values.find(name);
    if (found == bindings_.values.end()) fail_undeclared("value", name);
    used_.insert(name);
    return found->second;
  }

  const std::string& item_value(const std::string& list, const std::string& key) {
    const auto loop =
        std::find_if(loops_.begin(), loops_.end(), [&](const LoopItem& item) { return *item.list == list; });
    if (loop == loops_.end()) fail(fmt::format("'${{{}.{}}}' outside of '//% for {}'", list, key, list));
    if (loop->item == nullptr) return empty_;
    const auto found = loop->item->find(key);
    if (found == loop->item->end()) fail_undeclared("key", list + "." + key);
    used_.insert(list + "." + key);
    return found->second;
  }

  [[noreturn]] void fail_undeclared(const char* kind, const std::string& name) const {
    const char* other = bindings_.values.contains(name)       ? "value"
                        : bindings_.conditions.contains(name) ? "condition"
                        : bindings_.lists.contains(name)      ? "list"
                                                              : nullptr;
    if (other != nullptr) fail(fmt::format("'{}' is a {}, but is used as a {}", name, other, kind));
    fail(fmt::format("the {} '{}' is not declared", kind, name));
  }

  const TemplateSet& templates_;
  const TemplateBindings& bindings_;
  RenderedText out_;
  std::set<std::string> used_;      // names; for items "list.key"
  std::set<std::string> included_;  // partials that left text
  std::vector<Place> places_;       // from the root to the template being rendered
  std::vector<LoopItem> loops_;
  const std::string empty_;  // the value of an item that there is not
};
}  // namespace

RenderedText render(const TemplateSet& templates, const std::string& root, const TemplateBindings& bindings) {
  return Renderer(templates, bindings).render(root);
}

}  // namespace attune
