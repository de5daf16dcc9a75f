#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/database/measurement.h"

namespace attune {

/// Rows as a JSON document for people and for diff: {"format": "attune measurements", "version": 1, "measurements":
/// [...]}, in the order given, one entry each with one field a line, provenance included.
std::string export_measurements(const std::vector<Measurement>& rows);

/// The rows of such a document, equal in every field to those that were exported. Throws Error(invalid_argument) that
/// begins with `name` and gives the position of what is malformed: line and column where it is not JSON, else the
/// number of each malformed entry (the first ten) and its field. Unknown fields, values that would not come back as
/// they are written, negative quantities and missing identity or provenance are malformed.
std::vector<Measurement> import_measurements(std::string_view json, const std::string& name);

}  // namespace attune
