#include "tuner/database/database_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "generator/error.h"
#include "runtime/system/json_text.h"
#include "tuner/database/measurement_json.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "attune measurements";
constexpr int kVersion = 1;
constexpr std::size_t kMostComplaints = 10;

// The order of an entry's fields: question, answer, circumstances. Any other field follows.
constexpr std::array kFieldOrder = {
    "problem", "device",    "sm_count",  "config",      "status",         "reason",    "rigor",        "race",
    "place",   "median_us", "p20_us",    "p80_us",      "wide_median_us", "tflops",    "predicted_us", "sm_clock_mhz",
    "error_o", "error_lse", "registers", "spill_bytes", "shared_bytes",   "compile_ms"};
// Without these a row has no identity or no provenance.
constexpr std::array kRequired = {"problem",     "device",   "sm_count", "config",   "status",         "rigor",
                                  "source_hash", "compiler", "driver",   "protocol", "attune_version", "created_at"};
// Texts of which several spellings mean the same, and a value that follows from others.
constexpr std::array kNotCompared = {"problem", "config", "tflops"};

template <typename List>
bool contains(const List& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

std::string entry_text(const Measurement& row) {
  json fields = measurement_to_json(row);
  std::string text = "    {";
  const char* separator = "\n";
  const auto put = [&](const std::string& key) {
    if (!fields.contains(key)) return;  // as the race of a row that had none
    text += fmt::format("{}      {}: {}", separator, json_line(key), json_line(fields.at(key)));
    separator = ",\n";
  };
  for (const char* key : kFieldOrder) put(key);
  for (const auto& [key, value] : fields.items()) {
    if (!contains(kFieldOrder, key)) put(key);
  }
  return text + "\n    }";
}

[[noreturn]] void malformed(const std::string& complaint) { throw Error(ErrorCode::invalid_argument, complaint); }

// A whole number of the row must be written as one: 3.7 would be stored as 3. None can be negative.
void require_type(const std::string& key, const json& value, const json& example) {
  const auto whole = [](const json& number) { return number.is_number_unsigned(); };
  if (example.is_number_integer() && !whole(value))
    malformed(fmt::format("field \"{}\" is {}, expected a whole number of at least 0", key, shown(value)));
  if (key == "clocks_mhz" && value.is_array() && !std::all_of(value.begin(), value.end(), whole))
    malformed("field \"clocks_mhz\" holds something that is not a whole number of at least 0");
}

void require_sound(const Measurement& m) {
  validate(m.problem);
  if (m.device.empty()) malformed("field \"device\" is empty");
  if (!is_count_of_sms(m.sm_count))
    malformed(fmt::format("field \"sm_count\" is {}, expected at least 1 and what a GPU may have", m.sm_count));
  const auto require_quantity = [](const char* key, double value) {
    if (!std::isfinite(value) || std::signbit(value))
      malformed(fmt::format("field \"{}\" holds {}, expected a number of at least 0", key, value));
  };
  for (const double sample : m.samples_us) require_quantity("samples_us", sample);
  require_quantity("median_us", m.median_us);
  require_quantity("p20_us", m.p20_us);
  require_quantity("p80_us", m.p80_us);
  for (const double sample : m.wide_samples_us) require_quantity("wide_samples_us", sample);
  require_quantity("wide_median_us", m.wide_median_us);
  require_quantity("predicted_us", m.predicted_us);
  require_quantity("compile_ms", m.compile_ms);
  if (!m.clocks_mhz.empty() && m.clocks_mhz.size() != m.samples_us.size())
    malformed(fmt::format("field \"clocks_mhz\" has {} elements, \"samples_us\" {}", m.clocks_mhz.size(),
                          m.samples_us.size()));
  const bool is_wide = m.wide_median_us > 0 || !m.wide_samples_us.empty();
  if (is_wide && m.wide_samples_us.size() != m.samples_us.size())
    malformed(fmt::format("field \"wide_samples_us\" has {} elements, \"samples_us\" {}", m.wide_samples_us.size(),
                          m.samples_us.size()));
  if (m.race.empty() != (m.place == 0))
    malformed(fmt::format("field \"place\" is {} and \"race\" is \"{}\": a raced row has both, any other neither",
                          m.place, m.race));
  if (m.sequence > kGreatestForeignSequence)
    malformed(fmt::format("field \"sequence\" is {}, expected at most {}", m.sequence, kGreatestForeignSequence));
}

// A time in the one form that is stored: rows of several machines are ordered by it.
void settle_time(const char* key, std::string& time) {
  const std::optional<std::string> canonical = canonical_time(time);
  if (!canonical)
    malformed(fmt::format("field \"{}\" is \"{}\", expected a time in UTC as \"2025-01-31T12:00:00Z\"", key, time));
  time = *canonical;
}

// An entry as this version writes it: version 0.1 wrote the hash of templates.
json in_new_words(json entry) {
  const auto old = entry.find(kTemplatesHash);
  if (old == entry.end()) return entry;
  if (entry.contains("source_hash"))
    malformed(fmt::format("it has both fields \"{}\" and \"source_hash\"", kTemplatesHash));
  if (!old->is_string()) malformed(fmt::format("field \"{}\" is {}, expected a text", kTemplatesHash, shown(*old)));
  entry["source_hash"] = std::string(kTemplatesMark) + old->get<std::string>();
  entry.erase(kTemplatesHash);
  return entry;
}

Measurement read_entry(const json& written) {
  static const json kExample = [] {
    json example = measurement_to_json(Measurement{});
    example["race"] = Measurement{}.race;  // what a row that was not raced omits
    example["place"] = Measurement{}.place;
    example["sequence"] = Measurement{}.sequence;
    example["wide_samples_us"] = Measurement{}.wide_samples_us;
    example["wide_median_us"] = Measurement{}.wide_median_us;
    example.update(node_gpu_to_json({"node", "GPU", "driver", 1, 1, 1}));
    return example;
  }();
  if (!written.is_object()) malformed("it is not an object");
  const json entry = in_new_words(written);
  for (const char* key : kRequired) {
    if (!entry.contains(key)) malformed(fmt::format("field \"{}\" is missing", key));
  }
  for (const auto& [key, value] : entry.items()) {
    if (!kExample.contains(key)) malformed(fmt::format("field {} is unknown", shown(json(key))));
    require_type(key, value, kExample.at(key));
  }
  Measurement row = measurement_from_json(entry);
  json stored = kExample;
  stored.update(measurement_to_json(row));
  for (const auto& [key, value] : entry.items()) {
    if (!contains(kNotCompared, key) && stored.at(key) != value)
      malformed(
          fmt::format("field \"{}\" is {}, which would be stored as {}", key, shown(value), shown(stored.at(key))));
  }
  require_sound(row);
  settle_time("created_at", row.created_at);
  if (!row.race.empty()) settle_time("race", row.race);
  return row;
}

}  // namespace

std::string export_measurements(const std::vector<Measurement>& rows) {
  std::string text =
      fmt::format("{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"measurements\": [", kFormat, kVersion);
  const char* separator = "\n";
  for (const Measurement& row : rows) {
    text += separator + entry_text(row);
    separator = ",\n";
  }
  return text + (rows.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

std::vector<Measurement> import_measurements(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name);
  if (!document.is_object() || document.value("format", json()) != kFormat || !document.contains("measurements") ||
      !document["measurements"].is_array()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is not an export of measurements; `attune db export` makes one", name));
  }
  if (document.value("version", json()) != kVersion) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has version {} of the format, this program reads version {}", name,
                            shown(document.value("version", json())), kVersion));
  }
  const json& entries = document["measurements"];
  std::vector<Measurement> rows;
  std::vector<std::string> complaints;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    try {
      rows.push_back(read_entry(entries[i]));
    } catch (const Error& error) {
      if (++wrong <= kMostComplaints) complaints.push_back(fmt::format("entry {}: {}", i + 1, error.what()));
    }
  }
  if (wrong > 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} of {} entries malformed, nothing is imported: {}{}", name, wrong, entries.size(),
                            fmt::join(complaints, "; "), wrong > kMostComplaints ? "; ..." : ""));
  }
  return rows;
}

}  // namespace attune
