#include "tuner/database/system_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <tuple>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/database_schema.h"
#include "tuner/database/file_system.h"
#include "tuner/database/output_file.h"
#include "tuner/database/sqlite.h"

namespace attune {

namespace fs = std::filesystem;

namespace {

// The change counter of an SQLite file and, equal to it, the counter at which its header was last right. Each write to
// a file raises the first: with this mark in both it is what write_system_database() made, and nothing was added.
constexpr std::size_t kChangeCounterAt = 24, kVersionValidForAt = 92;
constexpr char kShippedMark[4] = {'A', 't', 't', 'S'};

}  // namespace

std::vector<Measurement> rows_to_ship(const std::vector<Measurement>& rows) {
  using Question = std::tuple<std::string, std::string, int>;
  // Which row stands for each config: the newest of its highest rigor.
  std::map<Question, std::map<std::string, const Measurement*>> standing;
  for (const Measurement& row : rows) {
    if (row.rigor == Rigor::estimate) continue;
    std::string why = impossibility(row);
    if (why.empty()) why = error_beyond_bounds(row);
    if (!why.empty()) {
      attune::log(LogLevel::warning,
                  fmt::format("\"{}\" of \"{}\" on {}, measured {}, is not shipped: {}", canonical_text(row.config),
                              canonical_text(row.problem), row.device, row.created_at, why));
      continue;
    }
    const Measurement*& chosen =
        standing[{canonical_text(row.problem), row.device, row.sm_count}][canonical_text(row.config)];
    if (chosen == nullptr || row.rigor > chosen->rigor || (row.rigor == chosen->rigor && is_newer(row, *chosen)))
      chosen = &row;
  }
  const auto is_result = [](const Measurement& row) {
    return row.status == MeasurementStatus::ok && row.ranking_us() > 0;
  };
  std::vector<const Measurement*> kept;
  for (const auto& [question, configs] : standing) {
    const Measurement* best = nullptr;
    for (const auto& [text, row] : configs) {
      if (is_result(*row) && (best == nullptr || ranks_before(*row, *best))) best = row;
    }
    if (best == nullptr) continue;
    kept.push_back(best);
    // What is the default depends on the device; one that is not known by its name has none here.
    std::optional<DeviceSpec> device = find_device_by_name(best->device);
    if (!device) continue;
    device->sm_count = best->sm_count;
    const auto found = configs.find(canonical_text(default_config(best->problem, *device)));
    if (found != configs.end() && found->second != best && is_result(*found->second)) kept.push_back(found->second);
  }
  std::vector<Measurement> shipped;
  for (const Measurement& row : rows) {
    if (std::find(kept.begin(), kept.end(), &row) == kept.end()) continue;
    Measurement& summary = shipped.emplace_back(row);
    summary.samples_us.clear();
    summary.wide_samples_us.clear();
    summary.clocks_mhz.clear();
    summary.node = {};  // names of somebody's machines
  }
  return shipped;
}

bool is_system_database(std::string_view head) {
  return head.size() >= kVersionValidForAt + sizeof(kShippedMark) &&
         std::memcmp(head.data() + kChangeCounterAt, kShippedMark, sizeof(kShippedMark)) == 0 &&
         std::memcmp(head.data() + kVersionValidForAt, kShippedMark, sizeof(kShippedMark)) == 0;
}

std::string system_database_image(const std::vector<Measurement>& rows, const DatabaseLabel& label) {
  check_label(label);
  std::string image;
  try {
    sqlite::Connection db(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    db.execute("PRAGMA foreign_keys = ON");
    migrate(db);
    sqlite::Transaction transaction(db);
    for (const Measurement& row : rows) insert_row(db, row);
    store_label(db, label);
    transaction.commit();
    db.execute("VACUUM");
    sqlite3_int64 bytes = 0;
    const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> copy(
        sqlite3_serialize(db.handle(), "main", &bytes, 0), &sqlite3_free);
    if (!copy) throw std::bad_alloc();
    image.assign(reinterpret_cast<const char*>(copy.get()), static_cast<std::size_t>(bytes));
  } catch (const sqlite::Failure& failure) {
    throw Error(ErrorCode::database, failure.message);
  }
  for (const std::size_t at : {kChangeCounterAt, kVersionValidForAt})
    image.replace(at, sizeof(kShippedMark), kShippedMark, sizeof(kShippedMark));
  return image;
}

void write_system_database(const fs::path& path, const std::vector<Measurement>& rows,
                           const std::vector<fs::path>& inputs, const DatabaseLabel& label) {
  const std::string image = [&] {
    try {
      return system_database_image(rows, label);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("cannot make the system database {}: {}", path.string(), error.what()));
    }
  }();
  std::error_code error;
  if (!OutputFile::is_standard_output(path)) fs::create_directories(folder_of(path), error);  // or the file says why
  write_output_file(path, image, {.inputs = inputs, .over_system_database = true, .binary = true});
}

}  // namespace attune
