#pragma once

#include <filesystem>
#include <string>

#include "tuner/database/database_schema.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// A sqlite::Failure's code 0 is none of SQLite's: its message is a whole sentence. So is that of this one, for a
/// schema that is newer than this program's.
inline constexpr int kNewerSchema = -1;

/// Whether SQLite says that a file is no database or a damaged one.
bool is_corruption(const sqlite::Failure& failure);

/// What to tell a person about a failed query or write of a file.
std::string explain(const std::filesystem::path& path, const sqlite::Failure& failure);

/// What inspect_schema() finds. Throws sqlite::Failure of code 0, its message a whole sentence, for tables that are not
/// to be read: another program's, or not as Attune makes them.
SchemaFacts usable_schema(const std::filesystem::path& path, sqlite::Connection& connection);

/// Why this process could not write to the file, as far as permissions say; empty if it could.
std::string not_writable_because(const std::filesystem::path& path);

/// Throws sqlite::Failure with what SQLite's own quick check of pages and types finds first; SQLITE_IOERR where the
/// file cannot be read, SQLITE_CORRUPT where it is damaged.
void check_integrity(sqlite::Connection& connection);

/// The same for indices that disagree with their tables, by which a lookup would find nothing in silence: some 5 µs a
/// row. It computes what the schema says, and is for tables that usable_schema() takes.
void check_indices(sqlite::Connection& connection);

/// The note for a file of a newer schema, which is read and never written.
std::string newer_sentence(const std::filesystem::path& path, const SchemaFacts& facts);

}  // namespace attune
