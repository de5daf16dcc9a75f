#include "tests/source_folder.h"

namespace attune::testing {

std::filesystem::path source_folder() { return ATTUNE_SOURCE_DIR; }

}  // namespace attune::testing
