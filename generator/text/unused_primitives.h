#pragma once

#include "generator/text/renderer.h"

namespace attune {

/// Drops of the lines that come from primitives/ what nothing else needs: each function, type and constant there whose
/// name the kernel, and what it keeps of the primitives, does not use. Names in comments and strings count for nothing.
/// What has no name of its own, or is extern "C", stays. A comment stays with the functions that follow it up to the
/// next blank line or comment, if one of them does.
void drop_unused_primitives(RenderedText* rendered);

}  // namespace attune
