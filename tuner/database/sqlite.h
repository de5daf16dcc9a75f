#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_file;
struct sqlite3_stmt;

namespace attune::sqlite {

/// What SQLite said, with its extended result code. Never leaves the database's code: it becomes an Error or a note
/// there. That memory ran out is no Failure but std::bad_alloc: nothing is wrong with a file then, and nobody may
/// conclude that there is.
struct Failure {
  int code = 0;  ///< extended
  std::string message;
  int primary() const { return code & 0xff; }
};

/// Whether a result code says that memory ran out.
bool is_out_of_memory(int code);
/// Throws std::bad_alloc for such a code, else Failure.
[[noreturn]] void fail(int code, const std::string& message);

/// One connection. Not thread-safe. Throws Failure. What it opens may come from anybody: the schema is not trusted, its
/// triggers and views never run (temporary ones of this connection do), and sizes are bounded. Queries have the
/// function time_order(text) of utc_time.h.
class Connection {
 public:
  Connection(const std::string& path_or_uri, int flags);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void execute(const char* sql);
  std::int64_t integer(const char* sql);  ///< first column of the first row; 0 without rows
  std::string text(const char* sql);
  bool read_only() const;
  std::int64_t changes() const;  ///< rows that the last INSERT, UPDATE or DELETE changed
  sqlite3* handle() const { return handle_; }

 private:
  sqlite3* handle_ = nullptr;
};

/// The bytes of a database by way of SQLite's own layer: closing a descriptor of one's own would drop the locks that
/// connections of this process hold on the file. Throws Failure.
class RawFile {
 public:
  explicit RawFile(const std::filesystem::path& path);  ///< its links resolved
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  std::string read(std::int64_t from, std::size_t bytes);  ///< fewer at the end of the file

 private:
  std::vector<std::byte> memory_;
  const char* name_ = nullptr;
  sqlite3_file* file_ = nullptr;
};

/// A prepared statement with bound parameters, numbered from 1 in the order of bind(). Throws Failure.
class Statement {
 public:
  Statement(const Connection& connection, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::int64_t value);
  Statement& bind(int value) { return bind(static_cast<std::int64_t>(value)); }
  Statement& bind(double value);  ///< NaN becomes NULL
  Statement& bind(std::string_view value);
  Statement& bind_column(const Statement& row, int column);  ///< as the column of another query's row is
  Statement& bind_blob(const void* data, std::size_t bytes);

  bool step();   ///< whether there is a row
  void reset();  ///< to be bound and run once more; cheaper than preparing it again

  std::int64_t integer(int column) const;
  int int32(int column) const;    ///< the nearest one to what is stored
  double real(int column) const;  ///< NULL becomes NaN
  std::string text(int column) const;
  std::string_view blob(int column) const;  ///< until the next step
  /// Whole elements of a blob of numbers, in the machine's byte order.
  template <typename T>
  std::vector<T> numbers(int column) const {
    const std::string_view bytes = blob(column);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  void check(int code) const;
  void require_null(int column) const;

  sqlite3* connection_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
  int next_parameter_ = 1;
};

/// BEGIN IMMEDIATE … COMMIT; rolled back if it is not committed.
class Transaction {
 public:
  explicit Transaction(Connection& connection);
  ~Transaction();
  void commit();

 private:
  Connection& connection_;
  bool open_ = true;
};

}  // namespace attune::sqlite
