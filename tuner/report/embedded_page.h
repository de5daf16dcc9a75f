#pragma once

#include <string_view>

namespace attune {

/// The files that a report's page is made of, as they were when the library was built.
struct EmbeddedPage {
  std::string_view page, style, script;
  std::string_view library, library_licence;  ///< of the plotting library's package
};

EmbeddedPage embedded_page();

}  // namespace attune
