#pragma once

#include <string>
#include <string_view>

namespace attune {

/// Sixteen hexadecimal digits of XXH3-64: by this text kernels are told apart.
std::string hash_of_text(std::string_view text);

/// What a kernel's first line begins with; the line says what the kernel was generated for.
inline constexpr std::string_view kHeadMark = "// attune ";

/// A kernel's source without that line (the whole of a source that has none): by its hash times and cubins are kept.
std::string_view source_body(std::string_view source);

}  // namespace attune
