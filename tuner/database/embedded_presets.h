#pragma once

#include <string_view>

namespace attune {

/// The bytes of the system database that the build made from presets/*.json, part of the program or library; valid for
/// ever.
std::string_view embedded_presets();

}  // namespace attune
