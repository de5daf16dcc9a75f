#pragma once

#include <sqlite3.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/source_folder.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/measurement.h"
#include "tuner/database/tuning_database.h"

namespace attune::test {

inline void require_equal(const Measurement& a, const Measurement& b) {
  REQUIRE(a.problem == b.problem);
  REQUIRE(a.config == b.config);
  REQUIRE(a.device == b.device);
  REQUIRE(a.sm_count == b.sm_count);
  REQUIRE(a.status == b.status);
  REQUIRE(a.reason == b.reason);
  REQUIRE(a.rigor == b.rigor);
  REQUIRE(a.race == b.race);
  REQUIRE(a.place == b.place);
  REQUIRE(a.samples_us == b.samples_us);
  REQUIRE(a.wide_samples_us == b.wide_samples_us);
  REQUIRE(a.wide_median_us == b.wide_median_us);
  REQUIRE(a.clocks_mhz == b.clocks_mhz);
  REQUIRE(a.median_us == b.median_us);
  REQUIRE(a.p20_us == b.p20_us);
  REQUIRE(a.p80_us == b.p80_us);
  REQUIRE(a.predicted_us == b.predicted_us);
  REQUIRE(a.sm_clock_mhz == b.sm_clock_mhz);
  REQUIRE((a.error_o == b.error_o || (std::isnan(a.error_o) && std::isnan(b.error_o))));
  REQUIRE((a.error_lse == b.error_lse || (std::isnan(a.error_lse) && std::isnan(b.error_lse))));
  REQUIRE(a.registers == b.registers);
  REQUIRE(a.spill_bytes == b.spill_bytes);
  REQUIRE(a.shared_bytes == b.shared_bytes);
  REQUIRE(a.compile_ms == b.compile_ms);
  REQUIRE(a.source_hash == b.source_hash);
  REQUIRE(a.compiler == b.compiler);
  REQUIRE(a.driver == b.driver);
  REQUIRE(a.protocol == b.protocol);
  REQUIRE(a.attune_version == b.attune_version);
  REQUIRE(a.node == b.node);
  REQUIRE(a.created_at == b.created_at);
}

/// Statements on a file, by SQLite itself and not by the code under test.
inline void run_sql(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* connection = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &connection) == SQLITE_OK);
  char* complaint = nullptr;
  const int code = sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, &complaint);
  INFO(sql << ": " << (complaint ? complaint : ""));
  sqlite3_free(complaint);
  sqlite3_close(connection);
  REQUIRE(code == SQLITE_OK);
}

inline std::int64_t ask_sql(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* connection = nullptr;
  sqlite3_stmt* statement = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &connection) == SQLITE_OK);
  REQUIRE(sqlite3_prepare_v2(connection, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
  const std::int64_t value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(connection);
  return value;
}

inline std::string ask_sql_text(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* connection = nullptr;
  sqlite3_stmt* statement = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &connection) == SQLITE_OK);
  REQUIRE(sqlite3_prepare_v2(connection, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
  std::string value = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
  sqlite3_finalize(statement);
  sqlite3_close(connection);
  return value;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One of many rows of the same config.
inline Measurement numbered(int number) {
  Measurement row = example_measurement();
  row.samples_us[0] = number;
  return row;
}

inline void write_rows(const std::filesystem::path& path, int count) {
  TuningDatabase database(path);
  for (int i = 0; i < count; ++i) database.append(numbered(i));
}

/// What a database says when it does not store a row; empty if it does.
inline std::string failure_of(TuningDatabase& database, const Measurement& row = example_measurement()) {
  try {
    database.append(row);
  } catch (const Error& error) {
    REQUIRE(error.code() == ErrorCode::database);
    return error.what();
  }
  return {};
}

/// What corrupt databases of the name tuning.db were moved to.
inline std::vector<std::filesystem::path> kept_aside(const TemporaryFolder& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("tuning.db.corrupt-")) found.push_back(entry.path());
  }
  return found;
}

/// A tuning database of 50 rows with two pages overwritten: the names and the index of its problems. Its bytes.
inline std::string write_damaged_database(const std::filesystem::path& path) {
  {
    TuningDatabase database(path);
    for (int i = 0; i < 50; ++i) {
      Measurement row = example_measurement();
      row.samples_us[0] = i;
      database.append(row);
    }
  }
  std::string bytes = bytes_of(path);
  REQUIRE(bytes.size() > 20000);
  for (std::size_t i = 4096; i < 12288; ++i) bytes[i] = static_cast<char>(i * 37);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return bytes;
}

/// A file as a version of Attune wrote it whose newest schema was this one; see tests/tuner/database/schemas.
inline void begin_old_file(const std::filesystem::path& path, int schema) {
  const std::string name =
      (attune::testing::source_folder() / "tests/tuner/database/schemas" / ("v" + std::to_string(schema) + ".sql"))
          .string();
  std::ifstream file(name);
  INFO(name);
  REQUIRE(file);
  run_sql(path, std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace attune::test
