#pragma once

#include <filesystem>

#include "tuner/database/sqlite.h"

namespace attune {

/// Write-ahead logging for a database that is written; a rollback journal on a network file system, where the log's
/// index cannot be shared. Throws sqlite::Failure.
void choose_journal(const std::filesystem::path& path, sqlite::Connection& connection);

}  // namespace attune
