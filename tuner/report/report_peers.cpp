#include "tuner/report/report_peers.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "generator/error.h"
#include "runtime/system/json_text.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "attune comparison";
constexpr int kVersion = 1;
constexpr const char* kOwnName = "attune";

/// An object of the file with the words that lead to it: "peers.json, row 3, cudnn".
class Part {
 public:
  Part(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("it must be an object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", where_, what));
  }
  const Json& need(const char* field) const {
    const auto found = json_.find(field);
    if (found == json_.end()) fail(fmt::format("the field \"{}\" is missing", field));
    return *found;
  }
  bool has(const char* field) const { return json_.contains(field); }
  std::string text(const char* field) const {
    const Json& value = need(field);
    if (!value.is_string()) fail(fmt::format("the field \"{}\" must be a text", field));
    return value.get<std::string>();
  }
  /// A time: positive and finite.
  double time(const char* field) const {
    const Json& value = need(field);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
      fail(fmt::format("the field \"{}\" must be a positive number", field));
    return value.get<double>();
  }
  int count(const char* field) const {
    const Json& value = need(field);
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 1e9)
      fail(fmt::format("the field \"{}\" must be a whole number of at least 0", field));
    return value.get<int>();
  }
  Part part(const char* field) const { return {need(field), fmt::format("{}, {}", where_, field)}; }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

PeerTime peer_time(const std::string& peer, const Part& part) {
  PeerTime time;
  time.peer = peer;
  if (part.has("error")) {
    time.error = part.text("error");
    return time;
  }
  time.median_us = part.time("median_us");
  time.p20_us = part.time("p20_us");
  time.p80_us = part.time("p80_us");
  time.samples = part.count("samples");
  if (part.has("within")) {
    const Json& within = part.need("within");
    if (!within.is_boolean()) part.fail("the field \"within\" must be true or false");
    time.within = within.get<bool>();
  }
  return time;
}

/// Rows of other data have times that no row of the report's own is timed with.
bool is_of_unit_normal(const Part& row) {
  return !row.has("data") || row.text("data") == "normal:1" || row.text("data") == "normal";  // as earlier files say
}

PeerRow peer_row(const Part& part) {
  PeerRow row;
  try {
    row.problem = parse_problem(part.text("problem"));
    validate(row.problem);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", part.where(), error.what()));
  }
  if (part.has("config")) row.config = part.text("config");
  const Part contenders = part.part("contenders");
  for (const auto& [name, contender] : contenders.json().items()) {
    const PeerTime time = peer_time(name, {contender, fmt::format("{}, {}", part.where(), name)});
    if (name != kOwnName) {
      row.peers.push_back(time);
      continue;
    }
    row.attune_us = time.median_us;
    row.attune_p20_us = time.p20_us;
    row.attune_p80_us = time.p80_us;
  }
  return row;
}

}  // namespace

PeerFile parse_peers(std::string_view json, const std::string& name) {
  const Json document = parse_ordered_json(json, name);
  if (!document.is_object() || document.value("format", Json()) != kFormat) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "{} holds no times of peers: its \"format\" is not \"{}\". bindings/python/compare_with_torch.py --json "
            "FILE writes such a file",
            name, kFormat));
  }
  const Part whole(document, name);
  if (whole.count("version") > kVersion)
    whole.fail(fmt::format("it is of version {}, this program reads {}", whole.count("version"), kVersion));
  PeerFile file;
  file.name = name;
  const Part machine = whole.part("machine");
  file.gpu = machine.text("gpu");
  if (machine.has("sm_count")) file.sm_count = machine.count("sm_count");
  for (const auto& [what, version] : machine.json().items()) {
    if (what == "gpu" || what == "sm_count") continue;
    file.versions.emplace_back(what, version.is_string() ? version.get<std::string>() : shown(version));
  }
  if (whole.has("protocol")) file.protocol = whole.text("protocol");
  const Json& rows = whole.need("rows");
  if (!rows.is_array()) whole.fail("the field \"rows\" must be a list");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Part row(rows[i], fmt::format("{}, row {}", name, i + 1));
    if (is_of_unit_normal(row)) file.rows.push_back(peer_row(row));
  }
  return file;
}

std::string peer_title(const std::string& peer) {
  static constexpr std::pair<std::string_view, const char*> kTitles[] = {
      {"fa2", "FlashAttention-2"}, {"fa3", "FlashAttention-3"}, {"cudnn", "cuDNN"}, {"flex", "FlexAttention"}};
  for (const auto& [short_name, title] : kTitles) {
    if (short_name == peer) return title;
  }
  return peer;
}

}  // namespace attune
