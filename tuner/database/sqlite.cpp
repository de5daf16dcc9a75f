#include "tuner/database/sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "tuner/database/utc_time.h"

namespace attune::sqlite {
namespace {

[[noreturn]] void fail(sqlite3* connection, int code) {
  if (is_out_of_memory(code)) throw std::bad_alloc();
  const int extended = connection ? sqlite3_extended_errcode(connection) : code;
  sqlite::fail(extended != SQLITE_OK ? extended : code, connection ? sqlite3_errmsg(connection) : sqlite3_errstr(code));
}

constexpr int kMostBytesOfValue = 64 << 20;  // samples of a row take a few thousand

void distrust(sqlite3* connection) {
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, kMostBytesOfValue);
  const int code = sqlite3_exec(connection, "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr);
  if (is_out_of_memory(code)) throw std::bad_alloc();
}

// SQLite starts at its first use, which takes memory; what it does not start for is asked for in vain.
void start() {
  const int code = sqlite3_initialize();
  if (code != SQLITE_OK) fail(nullptr, code);
}

// utc_time.h's time_order(text), for queries.
void time_order(sqlite3_context* context, int, sqlite3_value** arguments) {
  try {
    if (sqlite3_value_type(arguments[0]) == SQLITE_NULL) return;
    const auto* const text = reinterpret_cast<const char*>(sqlite3_value_text(arguments[0]));
    if (text == nullptr) throw std::bad_alloc();
    const std::string order = attune::time_order({text, static_cast<std::size_t>(sqlite3_value_bytes(arguments[0]))});
    sqlite3_result_text(context, order.data(), static_cast<int>(order.size()), SQLITE_TRANSIENT);
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  }
}

void add_functions(sqlite3* connection) {
  const int code = sqlite3_create_function(connection, "time_order", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                                           &time_order, nullptr, nullptr);
  if (code != SQLITE_OK) fail(connection, code);
}

}  // namespace

bool is_out_of_memory(int code) { return (code & 0xff) == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM; }

void fail(int code, const std::string& message) {
  if (is_out_of_memory(code)) throw std::bad_alloc();
  throw Failure{code, message};
}

Connection::Connection(const std::string& path_or_uri, int flags) {
  const int code = sqlite3_open_v2(path_or_uri.c_str(), &handle_, flags | SQLITE_OPEN_EXRESCODE, nullptr);
  try {
    if (code != SQLITE_OK) fail(handle_, code);
    distrust(handle_);
    add_functions(handle_);
  } catch (...) {
    sqlite3_close_v2(handle_);
    throw;
  }
}

Connection::~Connection() { sqlite3_close_v2(handle_); }

void Connection::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(handle_, code);
}

std::int64_t Connection::integer(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::string Connection::text(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.text(0) : std::string();
}

bool Connection::read_only() const { return sqlite3_db_readonly(handle_, "main") == 1; }

std::int64_t Connection::changes() const { return sqlite3_changes64(handle_); }

RawFile::RawFile(const std::filesystem::path& path) {
  start();
  sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
  if (vfs == nullptr) throw Failure{SQLITE_ERROR, "SQLite has no way to files"};
  memory_.resize(static_cast<std::size_t>(vfs->szOsFile));
  name_ = sqlite3_create_filename(path.c_str(), "", "", 0, nullptr);
  auto* const file = reinterpret_cast<sqlite3_file*>(memory_.data());
  const int code =
      name_ ? vfs->xOpen(vfs, name_, file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, nullptr) : SQLITE_NOMEM;
  if (code == SQLITE_OK) {
    file_ = file;
    return;
  }
  if (file->pMethods) file->pMethods->xClose(file);
  sqlite3_free_filename(name_);
  fail(nullptr, code);
}

RawFile::~RawFile() {
  file_->pMethods->xClose(file_);
  sqlite3_free_filename(name_);
}

std::string RawFile::read(std::int64_t from, std::size_t bytes) {
  sqlite3_int64 size = 0;
  int code = file_->pMethods->xFileSize(file_, &size);
  if (code != SQLITE_OK) fail(nullptr, code);
  if (from >= size) return {};
  std::string read(static_cast<std::size_t>(std::min<sqlite3_int64>(size - from, static_cast<sqlite3_int64>(bytes))),
                   0);
  code = file_->pMethods->xRead(file_, read.data(), static_cast<int>(read.size()), from);
  if (code != SQLITE_OK) fail(nullptr, code);
  return read;
}

Statement::Statement(const Connection& connection, std::string_view sql) : connection_(connection.handle()) {
  check(sqlite3_prepare_v2(connection_, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::check(int code) const {
  if (code != SQLITE_OK) fail(connection_, code);
}

Statement& Statement::bind(std::int64_t value) {
  check(sqlite3_bind_int64(statement_, next_parameter_++, value));
  return *this;
}

Statement& Statement::bind(double value) {
  check(std::isnan(value) ? sqlite3_bind_null(statement_, next_parameter_++)
                          : sqlite3_bind_double(statement_, next_parameter_++, value));
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  check(sqlite3_bind_text64(statement_, next_parameter_++, value.data() ? value.data() : "", value.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_blob(const void* data, std::size_t bytes) {
  check(bytes == 0 ? sqlite3_bind_zeroblob(statement_, next_parameter_++, 0)
                   : sqlite3_bind_blob64(statement_, next_parameter_++, data, bytes, SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind_column(const Statement& row, int column) {
  check(sqlite3_bind_value(statement_, next_parameter_++, sqlite3_column_value(row.statement_, column)));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) fail(connection_, code);
  return code == SQLITE_ROW;
}

void Statement::reset() {
  sqlite3_reset(statement_);  // says again what step() threw, if it did
  next_parameter_ = 1;
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

int Statement::int32(int column) const {
  return static_cast<int>(
      std::clamp<std::int64_t>(integer(column), std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

double Statement::real(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL ? std::nan("")
                                                                : sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) require_null(column);
  return text ? std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
}

std::string_view Statement::blob(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  if (bytes == nullptr) require_null(column);
  return bytes ? std::string_view(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)))
               : std::string_view();
}

// A value that is none may also be one for which there was no memory.
void Statement::require_null(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_NULL && is_out_of_memory(sqlite3_errcode(connection_)))
    throw std::bad_alloc();
}

Transaction::Transaction(Connection& connection) : connection_(connection) { connection_.execute("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  // A failed statement may have rolled back already; then this one fails too and there is nothing to do.
  if (open_) sqlite3_exec(connection_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  connection_.execute("COMMIT");
  open_ = false;
}

}  // namespace attune::sqlite
