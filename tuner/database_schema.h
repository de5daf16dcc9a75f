#pragma once

#include <cstdint>

#include "tuner/sqlite.h"

namespace attune {

constexpr std::int64_t kApplicationId = 0x4174746e;  ///< "Attn", in the file's header: see file(1)

/// The newest schema that this program knows; a file's is its user_version.
int schema_version();

/// Brings a file of any older schema, or an empty one, to schema_version(), one transaction a step. Safe under several
/// processes. Throws sqlite::Failure; the steps that were done stay.
void migrate(sqlite::Connection& connection);

/// Makes a file of an older schema, which this connection cannot migrate, answer the queries of the newest one: what
/// was added since has its default. The file stays as it is. Throws sqlite::Failure.
void read_as_newest(sqlite::Connection& connection);

}  // namespace attune
