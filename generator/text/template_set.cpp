#include "generator/text/template_set.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "templates/embedded_templates.h"

namespace attune {
namespace {

constexpr std::string_view kInclude = "//% include ";

// The names after the include directives of a text.
std::vector<std::string> included_names(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.starts_with(kInclude)) {
      line.remove_prefix(kInclude.size());
      names.emplace_back(line.substr(0, line.find_last_not_of(" \t\r") + 1));
    }
    begin = end + 1;
  }
  return names;
}

// A name cut at its placeholders that are not known: "masks/${mask}" is {"masks/", ""}.
std::vector<std::string> fixed_parts(const std::string& name, const std::map<std::string, std::string>& known) {
  std::vector<std::string> parts = {""};
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = name.find('}', at);
    if (name.compare(at, 2, "${") != 0 || end == std::string::npos) {
      parts.back() += name[at++];
      continue;
    }
    const auto value = known.find(name.substr(at + 2, end - at - 2));
    if (value != known.end()) {
      parts.back() += value->second;
    } else {
      parts.emplace_back();
    }
    at = end + 1;
  }
  return parts;
}

// Whether a name consists of these parts with texts without '/' between them.
bool matches(std::string_view name, const std::vector<std::string>& parts, std::size_t part = 0) {
  if (!name.starts_with(parts[part])) return false;
  name.remove_prefix(parts[part].size());
  if (part + 1 == parts.size()) return name.empty();
  for (std::size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (matches(name.substr(skipped), parts, part + 1)) return true;
    if (skipped < name.size() && name[skipped] == '/') return false;
  }
  return false;
}

}  // namespace

std::string TemplateSet::hash_of(const std::string& root, const std::map<std::string, std::string>& known) const {
  return hash_of_all({root}, known);
}

std::string TemplateSet::hash_of_all(const std::set<std::string>& roots,
                                     const std::map<std::string, std::string>& known) const {
  std::set<std::string> reached = roots;
  std::vector<std::string> waiting(roots.begin(), roots.end());
  while (!waiting.empty()) {
    const std::string* text = find(waiting.back());
    waiting.pop_back();
    if (text == nullptr) continue;
    for (const std::string& included : included_names(*text)) {
      const std::vector<std::string> parts = fixed_parts(included, known);
      if (parts.size() == 1) {
        if (reached.insert(parts[0]).second) waiting.push_back(parts[0]);
        continue;
      }
      for (const auto& [name, unused] : texts_) {
        if (matches(name, parts) && reached.insert(name).second) waiting.push_back(name);
      }
    }
  }
  // Each string is preceded by its length, so that no two sets run into the same bytes.
  std::string bytes;
  for (const std::string& name : reached) {
    const std::string* text = find(name);
    bytes += fmt::format("{}:{}{}:{}", name.size(), name, text ? text->size() : 0, text ? *text : "");
  }
  return fmt::format("{:016x}", static_cast<std::uint64_t>(XXH3_64bits(bytes.data(), bytes.size())));
}

const TemplateSet& TemplateSet::embedded() {
  static const TemplateSet set = [] {
    std::size_t count = 0;
    const EmbeddedTemplate* templates = embedded_templates(&count);
    std::map<std::string, std::string> texts;
    for (std::size_t i = 0; i < count; ++i) texts.emplace(templates[i].name, templates[i].text);
    return TemplateSet(std::move(texts));
  }();
  return set;
}

const std::string* TemplateSet::find(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? nullptr : &found->second;
}

}  // namespace attune
