#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tuner/database/tuning_database.h"
#include "tuner/report/report_rows.h"

namespace attune {

/// The device of an entry: its name and, where it is known, the rates that ceilings come from.
nlohmann::ordered_json report_device(const TuningDatabase::Entry& entry);

/// One problem on one device: its work, ceilings, best and default rows, the cost model's quality and, where `trials`
/// asks for them, all its rows in the order of storing. Throws Error(database).
nlohmann::ordered_json report_problem(const TuningDatabase& database, const TuningDatabase::Entry& entry, bool trials,
                                      ReportRowLists& lists);

}  // namespace attune
