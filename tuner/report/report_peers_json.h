#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "tuner/database/tuning_database.h"
#include "tuner/report/report_peers.h"

namespace attune {

/// The peers of one problem, each by the last file that names it; marks in `matched[file][row]` the rows that were
/// used.
nlohmann::ordered_json report_peers_of(const TuningDatabase::Entry& entry, const std::vector<PeerFile>& files,
                                       std::vector<std::vector<bool>>& matched);

/// A file of peers' times: where it comes from, and how many of its rows the page shows.
nlohmann::ordered_json report_peer_file(const PeerFile& file, const std::vector<bool>& matched);

}  // namespace attune
