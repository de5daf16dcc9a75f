#pragma once

#include <string>
#include <string_view>

namespace attune::sqlite {
class Connection;
}

namespace attune {

/// What a system database is called, and which version of it a file holds: "site-h200", "2026.11". Either may be empty.
struct DatabaseLabel {
  std::string name, version;
  bool empty() const { return name.empty() && version.empty(); }
  friend bool operator==(const DatabaseLabel&, const DatabaseLabel&) = default;
};

/// The name of the presets, which are part of programs and libraries; their version is Attune's.
inline constexpr std::string_view kPresetsName = "presets";

std::string to_text(const DatabaseLabel& label);  ///< "site-h200 2026.11"

/// The table that holds it, in system databases that have one: one row. It is beside the schema, for no tuning database
/// needs it.
inline constexpr const char* kLabelTable = "CREATE TABLE label (name TEXT NOT NULL, version TEXT NOT NULL) STRICT";

/// Throws Error(invalid_argument) unless name and version each have at most 64 characters, all of them letters, digits
/// and "-_.+": they stand in sentences, in JSON and in a digest.
void check_label(const DatabaseLabel& label);

/// Makes the table; an empty label makes none. Throws sqlite::Failure.
void store_label(sqlite::Connection& connection, const DatabaseLabel& label);

/// What the file says, empty where it says nothing or what check_label() refuses. Throws sqlite::Failure.
DatabaseLabel read_label(sqlite::Connection& connection);

}  // namespace attune
