#pragma once

#include <map>
#include <string>
#include <utility>

#include "tuner/database/sqlite.h"

namespace attune {

/// A table, an index, a view or a trigger, by the statement that made it.
struct SchemaObject {
  std::string table, sql;
  friend bool operator==(const SchemaObject&, const SchemaObject&) = default;
};
using SchemaObjects = std::map<std::pair<std::string, std::string>, SchemaObject>;  ///< by type and name

/// What a file that anybody may have made says that it holds, without what SQLite's own ANALYZE leaves and a
/// label; runs nothing of it. Throws sqlite::Failure.
SchemaObjects objects_of(sqlite::Connection& connection);

}  // namespace attune
