#include "generator/template_set.h"

#include <fmt/format.h>
#include <xxhash.h>
#include <cstdint>

#include "templates/embedded_templates.h"

namespace attune {
namespace {
std::string hash_of(const std::map<std::string, std::string>& texts) {
  // Each string is preceded by its length, so that no two sets run into the same bytes.
  std::string bytes;
  for (const auto& [name, text] : texts) bytes += fmt::format("{}:{}{}:{}", name.size(), name, text.size(), text);
  return fmt::format("{:016x}", static_cast<std::uint64_t>(XXH3_64bits(bytes.data(), bytes.size())));
}
}  // namespace

TemplateSet::TemplateSet(std::map<std::string, std::string> texts) : texts_(std::move(texts)), hash_(hash_of(texts_)) {}

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
