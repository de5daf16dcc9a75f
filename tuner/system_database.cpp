#include "tuner/system_database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database_rows.h"
#include "tuner/database_schema.h"
#include "tuner/file_system.h"
#include "tuner/sqlite.h"

namespace attune {

namespace fs = std::filesystem;

std::vector<Measurement> rows_to_ship(const std::vector<Measurement>& rows) {
  using Question = std::tuple<std::string, std::string, int>;
  // Which row stands for each config: the newest of its highest rigor.
  std::map<Question, std::map<std::string, const Measurement*>> standing;
  for (const Measurement& row : rows) {
    if (row.rigor == Rigor::estimate) continue;
    const Measurement*& chosen =
        standing[{canonical_text(row.problem), row.device, row.sm_count}][canonical_text(row.config)];
    const auto age = [](const Measurement& m) { return std::tuple(m.rigor, std::string_view(m.created_at)); };
    if (chosen == nullptr || age(*chosen) <= age(row)) chosen = &row;
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
    summary.clocks_mhz.clear();
  }
  return shipped;
}

void write_system_database(const fs::path& path, const std::vector<Measurement>& rows) {
  const auto refuse = [&](const std::string& cause) {
    return Error(ErrorCode::database, fmt::format("cannot write the system database {}: {}", path.string(), cause));
  };
  std::error_code error;
  fs::create_directories(folder_of(path), error);
  const fs::path partial = fmt::format("{}.{}.partial", path.string(), ::getpid());
  fs::remove(partial, error);
  try {
    {
      sqlite::Connection db(partial.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
      db.execute("PRAGMA journal_mode = MEMORY; PRAGMA foreign_keys = ON");  // the rename makes it whole
      migrate(db);
      sqlite::Transaction transaction(db);
      for (const Measurement& row : rows) insert_row(db, row);
      transaction.commit();
      db.execute("VACUUM");
    }
    fs::rename(partial, path, error);
    if (error) throw refuse(error.message());
  } catch (const sqlite::Failure& failure) {
    fs::remove(partial, error);
    throw refuse(failure.message);
  } catch (const Error&) {
    fs::remove(partial, error);
    throw;
  }
}

}  // namespace attune
