#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tuner/database/tuning_database.h"
#include "tuner/report/report_peers.h"
#include "tuner/sweep/shapes_file.h"

namespace attune {

struct ReportRequest {
  std::vector<TuningDatabase::Entry> entries;  ///< what the page is about, of TuningDatabase::list()
  std::size_t selected = 0;                    ///< whose search is open first, always with all its rows
  std::size_t max_rows = 10000;     ///< rows of further problems are added whole, most rows first, while they fit
  std::vector<PeerFile> peers;      ///< where two name the same peer for the same problem, the later one counts
  std::vector<NamedProblem> names;  ///< what readers call problems, scale and layout aside
};

/// The entry with most rows among those of this problem, or of all; the first of equals. A problem that differs only in
/// scale and layout is taken if there is none that is the same. One that is not `preferred` is taken only where none of
/// these is; entries are asked in the order of their rows until one is.
std::optional<std::size_t> most_rows(
    const std::vector<TuningDatabase::Entry>& entries, const std::optional<AttentionProblem>& problem,
    const std::function<bool(const TuningDatabase::Entry&)>& preferred = [](const auto&) { return true; });

/// Whether the best row of an entry is a measured one. Throws Error(database).
bool is_measured(const TuningDatabase& database, const TuningDatabase::Entry& entry);

/// All that the page shows, as the document that its script reads: {"format": "attune report", "problems": [...], ...}.
/// `columns` names the values of each row ("best", "default", "trials"), of which "config" and "provenance" are numbers
/// in the lists of these names; `trials` are in the order of storing, null where they were left out. "bound_us" is the
/// roofline of the row's kernel, null where the device is not known: no time is below it. Times are in microseconds.
/// Throws Error(database).
nlohmann::ordered_json report_data(const TuningDatabase& database, const ReportRequest& request);

}  // namespace attune
