#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// The tokens of a C++ source as a compiler tells them apart (ISO C++20, [lex]), each on a line of its own: comments,
/// blanks and line breaks are gone, and a line that continues behind a backslash is one line. Literals stand as they
/// are written, with their prefix and suffix. Two sources with the same tokens are the same program:
///
///   for (int i = 0;  // all            for
///        i < 8; ++i)                   (
///                                      int ...
///
/// Blanks mean something in a preprocessor directive (`#define f (x)` is not `#define f(x)`): there each run of them is
/// a line with one blank, and an empty line ends the directive.
///
/// Nothing for a source whose meaning hangs on more than its tokens, or that is none: one that includes others, asks
/// for its line numbers, turns tokens into text (the operator # of a macro), or has an open literal or comment, a
/// backslash outside of literals, or blanks between a backslash and the end of its line.
std::optional<std::string> source_tokens(std::string_view source);

}  // namespace attune
