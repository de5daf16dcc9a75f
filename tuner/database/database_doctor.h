#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace attune {

/// Something that is wrong with a database, as a person should read it.
struct DatabaseFinding {
  std::string check;   ///< "file", "schema", "integrity", "foreign_keys", "content_hash", "orphans", "problem", "race",
                       ///< "node"
  std::string what;    ///< names the row or the object
  std::string advice;  ///< what to do
};

struct DatabaseDiagnosis {
  std::vector<DatabaseFinding> findings;  ///< empty: nothing is wrong
  std::int64_t rows = 0;                  ///< whose content hash was computed anew
  std::int64_t unreadable = 0;            ///< of them, rows that this version passes over; not wrong by itself
};

/// Looks at a file without changing, creating or replacing anything: SQLite's own check of pages, indices and types,
/// application id and schema, references, rows that nothing refers to, problems whose columns contradict their text,
/// the content hash of every row, places in races, and GPUs whose times differ from others' (node_agreement.h). Never
/// throws for what is in the file.
DatabaseDiagnosis examine_database(const std::filesystem::path& path);

}  // namespace attune
