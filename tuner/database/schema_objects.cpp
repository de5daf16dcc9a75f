#include "tuner/database/schema_objects.h"

#include <fmt/format.h>

#include "tuner/database/database_label.h"

namespace attune {
namespace {

constexpr int kMostObjects = 1000;  // of a foreign schema that are looked at

// What is in no schema and changes no answer: what SQLite's own ANALYZE leaves, and the label of a system database.
bool is_beside_schema(const std::string& type, const std::string& sql) {
  return type == "table" && (sql == kLabelTable || sql == "CREATE TABLE sqlite_stat1(tbl,idx,stat)" ||
                             sql == "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)");
}

}  // namespace

SchemaObjects objects_of(sqlite::Connection& connection) {
  SchemaObjects objects;
  sqlite::Statement query(
      connection, fmt::format("SELECT type, name, tbl_name, sql FROM main.sqlite_schema LIMIT {}", kMostObjects));
  while (query.step()) {
    const std::string type = query.text(0), sql = query.text(3);
    if (!is_beside_schema(type, sql)) objects.insert_or_assign({type, query.text(1)}, SchemaObject{query.text(2), sql});
  }
  return objects;
}

}  // namespace attune
