#include "tuner/database/database_label.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "tuner/database/sqlite.h"

namespace attune {
namespace {

constexpr std::size_t kMostCharacters = 64;
constexpr std::string_view kCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+";

bool is_sound(const std::string& text) {
  return text.size() <= kMostCharacters && text.find_first_not_of(kCharacters) == std::string::npos;
}

}  // namespace

std::string to_text(const DatabaseLabel& label) {
  return label.name + (label.name.empty() || label.version.empty() ? "" : " ") + label.version;
}

void check_label(const DatabaseLabel& label) {
  for (const auto& [what, text] : {std::pair("name", label.name), std::pair("version", label.version)}) {
    if (is_sound(text)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the {} of a system database has at most {} letters, digits and -_.+, and not: {}", what,
                            kMostCharacters, printable(text.substr(0, 2 * kMostCharacters))));
  }
}

void store_label(sqlite::Connection& connection, const DatabaseLabel& label) {
  if (label.empty()) return;
  connection.execute(kLabelTable);
  sqlite::Statement insert(connection, "INSERT INTO label VALUES (?, ?)");
  insert.bind(label.name).bind(label.version);
  insert.step();
}

DatabaseLabel read_label(sqlite::Connection& connection) {
  sqlite::Statement tables(connection, "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND sql = ?");
  tables.bind(std::string(kLabelTable));
  if (!tables.step()) return {};
  sqlite::Statement query(connection, "SELECT name, version FROM main.label LIMIT 1");
  if (!query.step()) return {};
  DatabaseLabel label{query.text(0), query.text(1)};
  return is_sound(label.name) && is_sound(label.version) ? label : DatabaseLabel();
}

}  // namespace attune
