#pragma once

#include <string_view>

namespace attune {

/// KernelFamily::terms of all families: ScoreFunction and its derivative are in the kernels of both passes.
inline constexpr std::string_view kTerms[] = {"softcap", "sink", "lengths"};

}  // namespace attune
