#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "generator/text/template_set.h"

namespace attune {

/// What a template may name. A name is declared once, in one of the maps.
struct TemplateBindings {
  std::map<std::string, std::string> values;  ///< ${name}
  std::map<std::string, bool> conditions;     ///< //% if name, //% if !name
  std::map<std::string, std::vector<std::map<std::string, std::string>>>
      lists;  ///< //% for name: item keys are ${name.key}

  void set(const std::string& name, const std::string& value) { values[name] = value; }
  void set(const std::string& name, std::int64_t value) { values[name] = std::to_string(value); }
};

/// Where one line of a rendered text comes from.
struct TemplateLine {
  std::string file;  ///< template name
  int line = 0;      ///< from 1
};

struct RenderedText {
  std::string text;
  std::vector<TemplateLine> lines;  ///< one per line of text
};

/// Renders templates.texts()[root].
///
///   ${name}              the value; also inside a directive's argument: //% include attention/mask_${mask}. A value of
///   several lines continues
///                        below the column where it began; in a line comment, as a comment.
///   //% include NAME     another template, indented whole by the indentation of the directive. A partial included a
///   second time in
///                        one rendering is an error.
///   //% if NAME, //% if !NAME, //% else, //% end
///   //% for LIST, //% end
///   //% -- text          a comment for readers of the template, not rendered
/// A directive is alone on its line. Throws Error(template_error) with file and line for: an undeclared name, a missing
/// partial, a malformed or unknown directive, an include of itself, a missing or stray end; and, after rendering, for a
/// value, condition or list that nothing used (names used only in a branch that was not taken count as used, and must
/// be declared like any other).
RenderedText render(const TemplateSet& templates, const std::string& root, const TemplateBindings& bindings);

}  // namespace attune
