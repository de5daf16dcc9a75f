#pragma once

#include "tuner/cli/verb.h"

namespace attune::cli {

/// `db status`: which problems of a list databases have results of, and of which GPU models.
Verb make_db_status(CommandLine& db);

}  // namespace attune::cli
