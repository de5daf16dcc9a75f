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

}  // namespace attune
