#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tuner/database/sqlite.h"

namespace attune {

constexpr std::int64_t kApplicationId = 0x4174746e;  ///< "Attn", in the file's header: see file(1)

/// The newest schema that this program knows; a file's is its user_version.
int schema_version();

/// An object of a file that is not as migrate() makes it.
struct SchemaDifference {
  enum class Kind {
    foreign,  ///< Attune makes none of this name
    missing,
    changed,
    number,  ///< the version itself: `type` and `name` are empty
  };
  Kind kind = Kind::foreign;
  std::string type, name;  ///< "trigger", "on_insert": may hold any bytes
};

/// What a file says about who made it, and how far that is so.
struct SchemaFacts {
  std::int64_t application = 0, version = 0;
  bool empty = true;  ///< it holds no object at all
  /// From the schema of its version; of a newer one only what this program would read is compared.
  std::vector<SchemaDifference> differences;
  /// The version as which its tables can be read, whatever the number and whatever else is in it; none if they cannot.
  std::optional<int> readable_as;

  bool is_attunes() const { return application == kApplicationId || (application == 0 && empty); }
  bool is_newer() const { return version > schema_version(); }
};
/// Reads the schema of a file that anybody may have made; runs nothing that is in it. Throws sqlite::Failure.
SchemaFacts inspect_schema(sqlite::Connection& connection);

/// "its trigger spy is not one that Attune makes": a sentence for people, without control characters.
std::string describe(const SchemaDifference& difference, const SchemaFacts& facts);

/// Brings a file of any older schema, or an empty one, to schema_version(), one transaction a step. Safe under several
/// processes. The file is one that inspect_schema() finds no difference in. Throws sqlite::Failure; the steps that were
/// done stay.
void migrate(sqlite::Connection& connection);

/// Makes a file whose tables are those of an older `version`, which this connection cannot migrate, answer the queries
/// of the newest one: what was added since has its default. The file stays as it is. Throws sqlite::Failure.
void read_as_newest(sqlite::Connection& connection, std::int64_t version);

}  // namespace attune
