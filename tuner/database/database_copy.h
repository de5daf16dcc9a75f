#pragma once

#include <filesystem>
#include <memory>

#include "tuner/database/sqlite.h"

namespace attune {

/// A connection to a private copy of a database with its log or its journal, made in a folder below `parent`. The
/// copy's files are gone already; what another program left half written is rolled back in it. Throws sqlite::Failure:
/// SQLITE_FULL or SQLITE_CANTOPEN where `parent` has no room for it, SQLITE_BUSY for a file that changes all the time.
std::unique_ptr<sqlite::Connection> connect_to_copy(const std::filesystem::path& path,
                                                    const std::filesystem::path& parent);

}  // namespace attune
