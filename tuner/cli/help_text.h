#pragma once

#include <cstddef>
#include <string>

namespace attune::cli {

/// CLI11's help with lines of at most so many columns: descriptions go on below their first word, and the examples,
/// which people copy, behind a backslash. A word is never broken.
std::string wrapped_help(const std::string& help, std::size_t columns);

/// Columns for what is read on stdout: the terminal's, but at most 100; 100 where stdout is none.
std::size_t help_columns();

}  // namespace attune::cli
