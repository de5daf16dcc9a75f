#include "tuner/report/report_peers_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tuner/database/tuned_shapes.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;
using Entry = TuningDatabase::Entry;

Json peer_json(const PeerRow& row, const PeerTime& time, std::size_t file) {
  Json json = {{"peer", time.peer}, {"title", peer_title(time.peer)}, {"file", file}, {"within", time.within}};
  if (!time.error.empty()) {
    json["error"] = time.error;
    return json;
  }
  json["median_us"] = time.median_us;
  json["p20_us"] = time.p20_us;
  json["p80_us"] = time.p80_us;
  json["samples"] = time.samples;
  if (row.attune_us > 0) {
    json["attune_us"] = row.attune_us;
    json["attune_p20_us"] = row.attune_p20_us;
    json["attune_p80_us"] = row.attune_p80_us;
    json["attune_config"] = row.config;
  }
  return json;
}

}  // namespace

Json report_peers_of(const Entry& entry, const std::vector<PeerFile>& files, std::vector<std::vector<bool>>& matched) {
  std::map<std::string, Json> by_name;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const PeerFile& file = files[f];
    if (file.gpu != entry.device || (file.sm_count != 0 && file.sm_count != entry.sm_count)) continue;
    for (std::size_t r = 0; r < file.rows.size(); ++r) {
      if (!same_but_scale_and_layout(file.rows[r].problem, entry.problem)) continue;
      matched[f][r] = true;
      for (const PeerTime& time : file.rows[r].peers) by_name[time.peer] = peer_json(file.rows[r], time, f);
    }
  }
  Json peers = Json::array();
  for (auto& [name, peer] : by_name) peers.push_back(std::move(peer));
  return peers;
}

Json report_peer_file(const PeerFile& file, const std::vector<bool>& matched) {
  Json json = {{"file", file.name},         {"gpu", file.gpu},
               {"protocol", file.protocol}, {"versions", Json::object()},
               {"rows", file.rows.size()},  {"shown", std::count(matched.begin(), matched.end(), true)}};
  for (const auto& [what, version] : file.versions) json["versions"][what] = version;
  return json;
}

}  // namespace attune
