#include "tuner/report/report_page.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "generator/error.h"
#include "tuner/report/embedded_page.h"

namespace attune {
namespace {

/// Nothing in it ends the script element that it stands in, nor begins a comment there.
std::string inside_script(const nlohmann::ordered_json& data) {
  const std::string text = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char letter : text) {
    if (letter == '<') {
      safe += "\\u003c";  // outside of its strings JSON has no such letter
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string escape_html(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

}  // namespace

std::string report_page(const nlohmann::ordered_json& data) {
  const EmbeddedPage embedded = embedded_page();
  const std::array<std::pair<std::string_view, std::string>, 5> parts = {{
      {"style", std::string(embedded.style)},
      {"library", std::string(embedded.library)},
      {"library_licence", escape_html(embedded.library_licence)},
      {"data", inside_script(data)},
      {"script", std::string(embedded.script)},
  }};
  // One pass over the page, so that nothing in a part is taken for a name.
  constexpr std::string_view kOpen = "<!--${", kClose = "}-->";
  std::string page;
  std::string_view rest = embedded.page;
  for (std::size_t open = rest.find(kOpen); open != std::string_view::npos; open = rest.find(kOpen)) {
    const std::size_t close = rest.find(kClose, open);
    const std::string_view name = rest.substr(open + kOpen.size(), close - open - kOpen.size());
    page += rest.substr(0, open);
    bool known = false;
    for (const auto& [part, text] : parts) {
      if (part != name) continue;
      page += text;
      known = true;
    }
    if (!known || close == std::string_view::npos)
      throw Error(ErrorCode::internal, "tuner/report/page.html names a part that there is not: " + std::string(name));
    rest.remove_prefix(close + kClose.size());
  }
  page += rest;
  return page;
}

}  // namespace attune
