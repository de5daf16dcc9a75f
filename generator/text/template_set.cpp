#include "generator/text/template_set.h"

#include <cstddef>

#include "generator/lazy_value.h"
#include "templates/embedded_templates.h"

namespace attune {

const TemplateSet& TemplateSet::embedded() {
  static constinit LazyValue<const TemplateSet> set;
  return set.get([] {
    std::size_t count = 0;
    const EmbeddedTemplate* templates = embedded_templates(&count);
    std::map<std::string, std::string> texts;
    for (std::size_t i = 0; i < count; ++i) texts.emplace(templates[i].name, templates[i].text);
    return TemplateSet(std::move(texts));
  });
}

const TemplateSet& TemplateSet::none() {
  static constinit LazyValue<const TemplateSet> set;
  return set.get([] { return TemplateSet({}); });
}

const std::string* TemplateSet::find(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? nullptr : &found->second;
}

}  // namespace attune
