#pragma once

#include <string>
#include <string_view>

namespace attune {

/// Sixteen hexadecimal digits of XXH3-64.
std::string hash_of_text(std::string_view text);

/// hash_of_text() of the source_tokens(), so that comments, blanks and line breaks change nothing: what was measured of
/// one text holds for any other with the same hash. A source without exact tokens is known by the whole of its
/// source_body().
std::string hash_of_source(std::string_view source);

/// What a kernel's first line begins with; the line says what the kernel was generated for.
inline constexpr std::string_view kHeadMark = "// attune ";

/// A kernel's source without that line (the whole of a source that has none): by its hash cubins are kept, whose line
/// tables know every line.
std::string_view source_body(std::string_view source);

}  // namespace attune
