#pragma once

#include <filesystem>

#include "generator/text/template_set.h"

namespace attune {

/// Every *.cu file below `folder`, named by its path without the extension, as the embedded ones are. Throws Error(io)
/// that names what cannot be read.
TemplateSet load_template_folder(const std::filesystem::path& folder);

/// What kernels are generated from: the embedded templates, or those of the folder that $ATTUNE_TEMPLATE_DIR names
/// (edit, rerun, no rebuild), read once. Throws Error(io).
const TemplateSet& runtime_templates();

}  // namespace attune
