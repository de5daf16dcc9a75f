#pragma once

#include <filesystem>
#include <system_error>

namespace attune {

/// Moves a corrupt database and its log, which belong together, to a name beside it that says when; returns it. Moves
/// nothing where it sets `error`.
std::filesystem::path keep_aside(const std::filesystem::path& path, std::error_code& error);

}  // namespace attune
