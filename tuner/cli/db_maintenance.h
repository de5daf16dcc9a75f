#pragma once

#include <vector>

#include "tuner/cli/verb.h"

namespace attune::cli {

/// `db info`, `export`, `import`, `merge`, `ship`, `prune`, `doctor` and `vacuum`.
std::vector<Verb> make_db_maintenance(CommandLine& db);

}  // namespace attune::cli
