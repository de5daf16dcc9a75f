#pragma once

#include "generator/text/renderer.h"

namespace attune {

/// Drops of the lines that come from primitives/ and attention/, which offer more than any kernel needs, what nothing
/// else needs: each function, type and constant there whose name the kernel, and what it keeps of them, does not use.
/// Names in comments and strings count for nothing. What has no name of its own, or is extern "C", stays. A comment
/// stays with the functions that follow it up to the next blank line or comment, if one of them does.
void drop_unused_functions(RenderedText* rendered);

}  // namespace attune
