#include "tuner/database/schema_objects.h"

#include <fmt/format.h>

namespace attune {
namespace {

constexpr int kMostObjects = 1000;  // of a foreign schema that are looked at

// Statistics of ANALYZE, which change no answer.
bool is_statistics(const std::string& type, const std::string& sql) {
  return type == "table" && (sql == "CREATE TABLE sqlite_stat1(tbl,idx,stat)" ||
                             sql == "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)");
}

}  // namespace

SchemaObjects objects_of(sqlite::Connection& connection) {
  SchemaObjects objects;
  sqlite::Statement query(
      connection, fmt::format("SELECT type, name, tbl_name, sql FROM main.sqlite_schema LIMIT {}", kMostObjects));
  while (query.step()) {
    const std::string type = query.text(0), sql = query.text(3);
    if (!is_statistics(type, sql)) objects.insert_or_assign({type, query.text(1)}, SchemaObject{query.text(2), sql});
  }
  return objects;
}

}  // namespace attune
