#pragma once

#include <cstddef>

#include "generator/text/renderer.h"

namespace attune {

/// Columns (Unicode code points) of a rendered kernel's lines, where its text can be broken at all: a string literal,
/// a line of the preprocessor and a word longer than that stay whole.
inline constexpr std::size_t kSourceColumns = 120;

/// Lays out a rendered kernel for its readers, whatever lines its templates and values have made: paragraphs of
/// comments with a line that is too long are filled anew, a comment behind code that has no room there goes above it,
/// and a long line of code is broken where brackets are nested least, function bodies before all. A blank line stands
/// before each struct, and never two of them. A comment whose text is indented (`//   S = Q Kᵀ`) stays as it is. The
/// source_tokens() are the same as before, and each line is of the template line that it was made from.
void lay_out(RenderedText* rendered);

}  // namespace attune
