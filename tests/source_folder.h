#pragma once

#include <filesystem>

namespace attune::testing {

/// The folder of the sources that this program was built from: for what tests read from disk (templates, golden
/// sources, presets). A function, so that the path of a checkout stands in one object file and the others are the same
/// for each checkout.
std::filesystem::path source_folder();

}  // namespace attune::testing
