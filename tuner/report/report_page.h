#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace attune {

/// A page that holds everything it shows: report_data()'s document, the script that draws from it, its style, the
/// plotting library and that library's licence. It loads nothing, from nowhere, and says so to the browser.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace attune
