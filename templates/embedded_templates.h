#pragma once

#include <cstddef>
#include <string_view>

namespace attune {

/// One file of templates/, as it was when the library was built.
struct EmbeddedTemplate {
  std::string_view name;  ///< path below templates/ without its extension, such as "kernels/forward_sm80"
  std::string_view text;
};

/// All embedded templates, ordered by name; the array lives as long as the program.
const EmbeddedTemplate* embedded_templates(std::size_t* count);

}  // namespace attune
