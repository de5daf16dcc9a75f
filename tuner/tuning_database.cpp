#include "tuner/tuning_database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/sqlite.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;
using sqlite::Transaction;

constexpr std::int64_t kApplicationId = 0x4174746e;  // "Attn", in the file's header: see file(1)
constexpr int kBusyMilliseconds = 10'000;

// The schema of version i + 1 from that of version i. A migration that has shipped never changes.
constexpr std::array<const char*, 1> kMigrations = {R"sql(
CREATE TABLE problem (
  id          INTEGER PRIMARY KEY,
  text        TEXT    NOT NULL UNIQUE,  -- canonical; the other columns repeat it for queries
  pass        TEXT    NOT NULL,
  dtype       TEXT    NOT NULL,
  batch       INTEGER NOT NULL,
  heads_q     INTEGER NOT NULL,
  heads_kv    INTEGER NOT NULL,
  seq_q       INTEGER NOT NULL,
  seq_kv      INTEGER NOT NULL,
  head_dim    INTEGER NOT NULL,
  mask        TEXT    NOT NULL,         -- none, causal
  mask_offset INTEGER NOT NULL,
  scale       REAL    NOT NULL,
  layout      TEXT    NOT NULL,
  alignment   INTEGER NOT NULL
) STRICT;

CREATE TABLE device (
  id       INTEGER PRIMARY KEY,
  name     TEXT    NOT NULL,            -- the driver's name of the model
  sm_count INTEGER NOT NULL,
  UNIQUE (name, sm_count)
) STRICT;

CREATE TABLE provenance (
  id             INTEGER PRIMARY KEY,
  templates_hash TEXT NOT NULL,
  compiler       TEXT NOT NULL,
  driver         TEXT NOT NULL,
  protocol       TEXT NOT NULL,         -- how it was measured
  attune_version TEXT NOT NULL,
  UNIQUE (templates_hash, compiler, driver, protocol, attune_version)
) STRICT;

CREATE TABLE measurement (
  id            INTEGER PRIMARY KEY,    -- rises with the order of appending
  content_hash  TEXT    NOT NULL UNIQUE,
  problem_id    INTEGER NOT NULL REFERENCES problem (id),
  device_id     INTEGER NOT NULL REFERENCES device (id),
  provenance_id INTEGER NOT NULL REFERENCES provenance (id),
  config        TEXT    NOT NULL,       -- canonical
  status        TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  rigor         INTEGER NOT NULL,       -- 0 estimate, 1 measure, 2 patient, 3 exhaustive
  samples_us    BLOB    NOT NULL,       -- doubles, little endian
  clocks_mhz    BLOB    NOT NULL,       -- 32-bit integers, little endian
  median_us     REAL    NOT NULL,
  p20_us        REAL    NOT NULL,
  p80_us        REAL    NOT NULL,
  predicted_us  REAL    NOT NULL,
  sm_clock_mhz  INTEGER NOT NULL,
  error_o       REAL,                   -- NULL: an output held NaN
  error_lse     REAL,
  registers     INTEGER NOT NULL,
  spill_bytes   INTEGER NOT NULL,
  shared_bytes  INTEGER NOT NULL,
  compile_ms    REAL    NOT NULL,
  created_at    TEXT    NOT NULL        -- UTC, ISO 8601
) STRICT;

CREATE INDEX measurement_by_question ON measurement (problem_id, device_id, config, rigor, id);
)sql"};
constexpr int kSchemaVersion = static_cast<int>(kMigrations.size());

static_assert(std::endian::native == std::endian::little, "the schema stores little-endian numbers");
static_assert(std::is_same_v<decltype(Measurement::clocks_mhz)::value_type, std::int32_t>, "the schema stores 32 bits");

constexpr const char* kRowColumns =
    " p.text, d.name, d.sm_count, m.config, m.status, m.reason, m.rigor, m.samples_us, m.clocks_mhz, m.median_us, "
    "m.p20_us, m.p80_us,"
    " m.predicted_us, m.sm_clock_mhz, m.error_o, m.error_lse, m.registers, m.spill_bytes, m.shared_bytes, m.compile_ms,"
    " v.templates_hash, v.compiler, v.driver, v.protocol, v.attune_version, m.created_at ";
constexpr const char* kRowTables =
    " measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id"
    " JOIN provenance v ON v.id = m.provenance_id ";

// Rows whose problem or config this version cannot read, or that name an unknown status, are passed over: a miss, never
// an error.
std::optional<Measurement> read_row(const Statement& row) {
  try {
    Measurement m;
    int column = 0;
    m.problem = parse_problem(row.text(column++));
    m.device = row.text(column++);
    m.sm_count = static_cast<int>(row.integer(column++));
    m.config = parse_config(row.text(column++));
    const auto status = parse_measurement_status(row.text(column++));
    if (!status) return std::nullopt;
    m.status = *status;
    m.reason = row.text(column++);
    const std::int64_t rigor = row.integer(column++);
    if (rigor < 0 || rigor > static_cast<int>(Rigor::exhaustive)) return std::nullopt;
    m.rigor = static_cast<Rigor>(rigor);
    m.samples_us = row.numbers<double>(column++);
    m.clocks_mhz = row.numbers<std::int32_t>(column++);
    m.median_us = row.real(column++);
    m.p20_us = row.real(column++);
    m.p80_us = row.real(column++);
    m.predicted_us = row.real(column++);
    m.sm_clock_mhz = static_cast<int>(row.integer(column++));
    m.error_o = row.real(column++);
    m.error_lse = row.real(column++);
    m.registers = static_cast<int>(row.integer(column++));
    m.spill_bytes = static_cast<int>(row.integer(column++));
    m.shared_bytes = static_cast<std::size_t>(row.integer(column++));
    m.compile_ms = row.real(column++);
    m.templates_hash = row.text(column++);
    m.compiler = row.text(column++);
    m.driver = row.text(column++);
    m.protocol = row.text(column++);
    m.attune_version = row.text(column++);
    m.created_at = row.text(column++);
    return m;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// All fields of a row, so that equal rows (and only they) have equal hashes on any machine.
std::string content_hash(const Measurement& m) {
  // A NaN loses its sign in the database, and prints with it.
  const auto without_sign = [](double value) { return std::isnan(value) ? std::nan("") : value; };
  std::string bytes = fmt::format(
      "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{:a} {:a} {:a} {:a}\n{}\n{:a} {:a}\n{} {} {}\n{:a}\n{}\n{}\n{}\n{}\n{}\n{}\n",
      canonical_text(m.problem), canonical_text(m.config), m.device, m.sm_count, to_string(m.status), m.reason,
      to_string(m.rigor), m.median_us, m.p20_us, m.p80_us, m.predicted_us, m.sm_clock_mhz, without_sign(m.error_o),
      without_sign(m.error_lse), m.registers, m.spill_bytes, m.shared_bytes, m.compile_ms, m.templates_hash, m.compiler,
      m.driver, m.protocol, m.attune_version, m.created_at);
  for (const double sample : m.samples_us) bytes += fmt::format("{:a} ", sample);
  for (const int clock : m.clocks_mhz) bytes += fmt::format("{} ", clock);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string_view mask_text(MaskKind mask) { return mask == MaskKind::none ? "none" : "causal"; }

bool is_corruption(const Failure& failure) {
  return failure.primary() == SQLITE_NOTADB || failure.primary() == SQLITE_CORRUPT;
}

bool may_write(const fs::path& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// The name of a file system that WAL's shared memory does not work on; empty for a local one.
std::string network_file_system(const fs::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0) return {};
  struct Known {
    std::uint32_t magic;
    const char* name;
  };
  constexpr Known kKnown[] = {
      {0x6969, "NFS"},      {0x517b, "SMB"},        {0xfe534d42, "SMB2"},   {0xff534d42, "CIFS"},
      {0x01021997, "9P"},   {0x00c36400, "Ceph"},   {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},
      {0x65735546, "FUSE"}, {0x19830326, "BeeGFS"}, {0x5346414f, "AFS"},    {0x6b414653, "kAFS"},
      {0x73757245, "Coda"}, {0x7461636f, "OCFS2"},  {0x01161970, "GFS2"},   {0xaad7aaea, "PanFS"},
      {0x564c, "NCP"},
  };
  for (const Known& known : kKnown) {
    if (static_cast<std::uint32_t>(facts.f_type) == known.magic) return known.name;
  }
  return {};
}

bool is_full(const fs::path& folder) {
  struct statvfs facts {};
  constexpr std::uint64_t kOneTransaction = 64 << 10;
  return ::statvfs(folder.c_str(), &facts) == 0 &&
         facts.f_bavail * static_cast<std::uint64_t>(facts.f_frsize) < kOneTransaction;
}

// What to tell a person about a failed write.
std::string explain(const Failure& failure, const fs::path& path) {
  const bool out_of_space =
      failure.primary() == SQLITE_FULL || (failure.primary() == SQLITE_IOERR && is_full(folder_of(path)));
  if (out_of_space) return "the disk is full; free some space and run again, what was stored before is intact";
  if (failure.primary() == SQLITE_BUSY) {
    return fmt::format("another process has kept it locked for {} s; run again when that one has ended",
                       kBusyMilliseconds / 1000);
  }
  return fmt::format("{} (SQLite code {})", failure.message, failure.code);
}

// Held by the one process that replaces a corrupt file. Where the folder cannot be locked it is held by nobody.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

std::string uri_of(const fs::path& path, const char* query) {
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?" + query;
}

double log2_distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

double shape_distance(const AttentionProblem& a, const AttentionProblem& b) {
  return log2_distance(a.seq_q, b.seq_q) + log2_distance(a.seq_kv, b.seq_kv) +
         log2_distance(a.batch * a.heads_q, b.batch * b.heads_q) +
         log2_distance(a.heads_q / a.heads_kv, b.heads_q / b.heads_kv);
}

// Scale and layout change neither the work nor the kernel.
bool same_but_scale_and_layout(AttentionProblem a, const AttentionProblem& b) {
  a.softmax_scale = b.softmax_scale;
  a.layout = b.layout;
  return a == b;
}

}  // namespace

struct TuningDatabase::State {
  explicit State(fs::path file) : path(std::move(file)) { open(); }

  const fs::path path;
  std::vector<std::string> notes;
  bool read_only = false;
  std::string read_only_because;

  mutable std::mutex mutex;  // guards what follows
  std::unique_ptr<Connection> connection;
  pid_t owner = ::getpid();
  std::map<std::tuple<std::string, std::string, int>, std::optional<ConfigChoice>> answers;

  Connection& current() {
    // No connection crosses a fork: the child opens its own and leaves the parent's untouched, which closing would not.
    if (owner != ::getpid()) {
      static_cast<void>(connection.release());
      owner = ::getpid();
      open();
    }
    return *connection;
  }

  void open() {
    if (path.empty()) {
      stand_empty("there is no place for the tuning database: set HOME, XDG_DATA_HOME or ATTUNE_DATABASE");
      return;
    }
    std::error_code error;
    fs::create_directories(folder_of(path), error);
    if (error && !fs::exists(folder_of(path))) {
      stand_empty(fmt::format("the folder {} cannot be created ({})", folder_of(path).string(), error.message()));
      return;
    }
    try {
      open_file();
    } catch (const Failure& failure) {
      if (is_corruption(failure)) {
        replace_corrupt_file(failure.message);
      } else {
        stand_empty(fmt::format("{} cannot be opened: {}", path.string(), explain(failure, path)));
      }
    }
  }

  void open_file() {
    const bool exists = fs::exists(path);
    if (!may_write(folder_of(path)) || (exists && !may_write(path))) {
      if (!exists) {
        stand_empty(fmt::format("{} cannot be created: its folder is read-only", path.string()));
      } else {
        open_read_only(fmt::format("{} is read-only; results are not stored in it", path.string()));
      }
      return;
    }
    connection =
        std::make_unique<Connection>(path.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    sqlite3_busy_timeout(connection->handle(), kBusyMilliseconds);
    if (connection->read_only()) {
      open_read_only(fmt::format("{} is read-only; results are not stored in it", path.string()));
      return;
    }
    if (!inspect()) return;
    choose_journal();
    // Durable when a commit returns, power cuts included.
    connection->execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
    migrate();
    read_only = false;
    read_only_because.clear();
  }

  // Throws Failure for a corrupt file. False if this program must not write to it; then something else has been opened.
  bool inspect() {
    check_integrity(*connection);
    const std::int64_t application = connection->integer("PRAGMA application_id");
    const std::int64_t tables = connection->integer("SELECT count(*) FROM sqlite_schema");
    if (application != kApplicationId && (application != 0 || tables > 0)) {
      stand_empty(
          fmt::format("{} is not a tuning database but another program's; it is left alone. Name another file with "
                      "ATTUNE_DATABASE",
                      path.string()));
      return false;
    }
    const std::int64_t version = connection->integer("PRAGMA user_version");
    if (version > kSchemaVersion) {
      open_read_only(fmt::format(
          "{} was written by a newer Attune (schema {}, this program knows {}); it is read, results are not "
          "stored in it",
          path.string(), version, kSchemaVersion));
      return false;
    }
    return true;
  }

  static void check_integrity(Connection& connection) {
    const std::string verdict = connection.text("PRAGMA quick_check(1)");
    if (verdict != "ok") throw Failure{SQLITE_CORRUPT, verdict};
  }

  void choose_journal() {
    const std::string network = network_file_system(folder_of(path));
    if (!network.empty()) {
      notes.push_back(fmt::format(
          "{} is on {}, where write-ahead logging does not work: a rollback journal is used, and writers wait "
          "for each other longer",
          path.string(), network));
      connection->execute("PRAGMA journal_mode = DELETE");
      return;
    }
    // The busy handler is not asked while the mode changes: several programs may begin the same file at once.
    const int kPatience = kBusyMilliseconds / 10;
    for (int attempt = 0;; ++attempt) {
      try {
        connection->execute("PRAGMA journal_mode = WAL");
        return;
      } catch (const Failure& failure) {
        if (failure.primary() != SQLITE_BUSY || attempt == kPatience) throw;
        sqlite3_sleep(10);
      }
    }
  }

  void migrate() {
    while (connection->integer("PRAGMA user_version") < kSchemaVersion) {
      Transaction transaction(*connection);
      const auto version =
          static_cast<int>(connection->integer("PRAGMA user_version"));  // another process may have been here
      if (version >= kSchemaVersion) return;
      connection->execute(kMigrations[static_cast<std::size_t>(version)]);
      connection->execute(
          fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, version + 1).c_str());
      transaction.commit();
    }
  }

  void open_read_only(const std::string& note) {
    connection.reset();
    try {
      connection = std::make_unique<Connection>(path.string(), SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX);
      sqlite3_busy_timeout(connection->handle(), kBusyMilliseconds);
      connection->integer("SELECT count(*) FROM sqlite_schema");
    } catch (const Failure& failure) {
      if (is_corruption(failure)) throw;
      // WAL wants to create files beside the database even for reading. Without a log there is nothing in it to miss.
      std::error_code error;
      const auto log_bytes = fs::file_size(path.string() + "-wal", error);
      if (!error && log_bytes > 0) {
        stand_empty(fmt::format("{} cannot be read: its write-ahead log is not merged and its folder is read-only",
                                path.string()));
        return;
      }
      connection = std::make_unique<Connection>(uri_of(path, "mode=ro&immutable=1"),
                                                SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX);
    }
    check_integrity(*connection);
    const std::int64_t application = connection->integer("PRAGMA application_id");
    if (application != kApplicationId) {
      stand_empty(fmt::format("{} is not a tuning database and cannot be written", path.string()));
      return;
    }
    be_read_only(note);
  }

  // An empty database in memory, so that every question has an answer: nothing is known.
  void stand_empty(const std::string& note) {
    connection.reset();
    connection =
        std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    migrate();
    be_read_only(note);
  }

  void be_read_only(const std::string& note) {
    read_only = true;
    read_only_because = note;
    notes.push_back(note);
  }

  void replace_corrupt_file(const std::string& cause) {
    connection.reset();
    const FolderLock lock(folder_of(path));
    try {
      // Another process may have replaced it while this one waited.
      try {
        Connection probe(path.string(), SQLITE_OPEN_READWRITE);
        sqlite3_busy_timeout(probe.handle(), kBusyMilliseconds);
        check_integrity(probe);
      } catch (const Failure& failure) {
        if (!is_corruption(failure)) throw;
        std::error_code error;
        const fs::path aside = keep_aside(error);
        if (error) {
          stand_empty(fmt::format("{} is corrupt ({}) and could not be moved aside ({}); results are not stored",
                                  path.string(), cause, error.message()));
          return;
        }
        notes.push_back(fmt::format("{} was corrupt ({}): it is kept as {}, and a fresh database was begun",
                                    path.string(), cause, aside.string()));
      }
      open_file();
    } catch (const Failure& failure) {
      stand_empty(fmt::format("{} cannot be opened: {}", path.string(), explain(failure, path)));
    }
  }

  // Moves the file and its log, which belong together.
  fs::path keep_aside(std::error_code& error) const {
    std::string stamp = utc_now();
    std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
    const fs::path aside = path.string() + ".corrupt-" + stamp;
    fs::rename(path, aside, error);
    if (error) return aside;
    for (const char* suffix : {"-wal", "-shm", "-journal"}) {
      std::error_code absent;
      fs::rename(path.string() + suffix, aside.string() + suffix, absent);
    }
    return aside;
  }

  void insert(const Measurement& m) {
    Connection& db = current();
    Transaction transaction(db);
    const AttentionProblem& p = m.problem;
    const std::string text = canonical_text(p);
    Statement(db,
              "INSERT INTO problem (text, pass, dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, mask, "
              "mask_offset, scale, "
              "layout, alignment) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING")
        .bind(text)
        .bind(to_string(p.pass))
        .bind(to_string(p.dtype))
        .bind(p.batch)
        .bind(p.heads_q)
        .bind(p.heads_kv)
        .bind(p.seq_q)
        .bind(p.seq_kv)
        .bind(p.head_dim)
        .bind(mask_text(p.mask))
        .bind(p.mask_offset)
        .bind(static_cast<double>(p.softmax_scale))
        .bind(to_string(p.layout))
        .bind(p.alignment)
        .step();
    Statement(db, "INSERT INTO device (name, sm_count) VALUES (?, ?) ON CONFLICT DO NOTHING")
        .bind(m.device)
        .bind(m.sm_count)
        .step();
    Statement(
        db,
        "INSERT INTO provenance (templates_hash, compiler, driver, protocol, attune_version) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING")
        .bind(m.templates_hash)
        .bind(m.compiler)
        .bind(m.driver)
        .bind(m.protocol)
        .bind(m.attune_version)
        .step();
    Statement(
        db,
        "INSERT INTO measurement (problem_id, device_id, provenance_id, content_hash, config, status, reason, rigor, "
        "samples_us, "
        "clocks_mhz, median_us, p20_us, p80_us, predicted_us, sm_clock_mhz, error_o, error_lse, registers, "
        "spill_bytes, "
        "shared_bytes, compile_ms, created_at) VALUES ("
        "(SELECT id FROM problem WHERE text = ?), (SELECT id FROM device WHERE name = ? AND sm_count = ?), "
        "(SELECT id FROM provenance WHERE templates_hash = ? AND compiler = ? AND driver = ? AND protocol = ? AND "
        "attune_version = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (content_hash) DO "
        "NOTHING")
        .bind(text)
        .bind(m.device)
        .bind(m.sm_count)
        .bind(m.templates_hash)
        .bind(m.compiler)
        .bind(m.driver)
        .bind(m.protocol)
        .bind(m.attune_version)
        .bind(content_hash(m))
        .bind(canonical_text(m.config))
        .bind(to_string(m.status))
        .bind(m.reason)
        .bind(static_cast<int>(m.rigor))
        .bind_blob(m.samples_us.data(), m.samples_us.size() * sizeof(double))
        .bind_blob(m.clocks_mhz.data(), m.clocks_mhz.size() * sizeof(std::int32_t))
        .bind(m.median_us)
        .bind(m.p20_us)
        .bind(m.p80_us)
        .bind(m.predicted_us)
        .bind(m.sm_clock_mhz)
        .bind(m.error_o)
        .bind(m.error_lse)
        .bind(m.registers)
        .bind(m.spill_bytes)
        .bind(static_cast<std::int64_t>(m.shared_bytes))
        .bind(m.compile_ms)
        .bind(m.created_at)
        .step();
    transaction.commit();
  }

  // Runs a query of rows; a failure becomes an Error.
  template <typename Query>
  auto ask(Query query) {
    const std::lock_guard lock(mutex);
    try {
      return query(current());
    } catch (const Failure& failure) {
      throw Error(ErrorCode::database,
                  fmt::format("cannot read the tuning database {}: {}", path.string(), explain(failure, path)));
    }
  }

  std::vector<Measurement> rows(const std::string& from_measurements, const AttentionProblem& problem,
                                const std::string& device, int sm_count) {
    return ask([&](Connection& db) {
      Statement query(
          db, fmt::format("SELECT {} FROM {} WHERE p.text = ? AND d.name = ? AND d.sm_count = ? {} ORDER BY m.id",
                          kRowColumns, kRowTables, from_measurements));
      query.bind(canonical_text(problem)).bind(device).bind(sm_count);
      std::vector<Measurement> found;
      while (query.step()) {
        if (auto row = read_row(query)) found.push_back(std::move(*row));
      }
      return found;
    });
  }

  // The rows that can be chosen for a stored problem, the best first: what ranks_before() says, as a query.
  template <typename Take>
  static void each_ranked(Connection& db, std::string_view problem_text, const std::string& device, int sm_count,
                          Take take) {
    static const std::string kQuery = fmt::format(
        R"sql(
WITH standing AS (   -- each config by the newest row of its highest rigor
  SELECT m.id, row_number() OVER (PARTITION BY m.config ORDER BY m.rigor DESC, m.id DESC) AS place
  FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  WHERE p.text = ? AND d.name = ? AND d.sm_count = ?
), chosen AS (
  SELECT m.*, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END AS ranking_us
  FROM measurement m JOIN standing s ON s.id = m.id
  WHERE s.place = 1 AND m.status = 'ok'
)
SELECT {} FROM chosen m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  JOIN provenance v ON v.id = m.provenance_id
WHERE m.ranking_us > 0
ORDER BY m.rigor DESC, m.ranking_us, m.config
)sql",
        kRowColumns);
    Statement query(db, kQuery);
    query.bind(problem_text).bind(device).bind(sm_count);
    while (query.step()) {
      const auto row = read_row(query);
      if (row && take(*row)) return;
    }
  }

  struct Neighbour {
    std::string text;
    AttentionProblem problem;
    bool exact = false;
    double distance = 0;
  };

  static std::vector<Neighbour> neighbours(Connection& db, const AttentionProblem& problem, const DeviceSpec& device) {
    Statement query(
        db,
        "SELECT p.text FROM problem p WHERE p.pass = ? AND p.dtype = ? AND p.head_dim = ? AND p.mask = ? AND "
        "p.alignment = ? AND EXISTS (SELECT 1 FROM measurement m JOIN device d ON d.id = m.device_id "
        "WHERE m.problem_id = p.id AND d.name = ? AND d.sm_count = ?)");
    query.bind(to_string(problem.pass))
        .bind(to_string(problem.dtype))
        .bind(problem.head_dim)
        .bind(mask_text(problem.mask))
        .bind(problem.alignment)
        .bind(device.name)
        .bind(device.sm_count);
    std::vector<Neighbour> found;
    while (query.step()) {
      Neighbour neighbour;
      neighbour.text = query.text(0);
      try {
        neighbour.problem = parse_problem(neighbour.text);
      } catch (const Error&) {
        continue;
      }
      neighbour.exact = same_but_scale_and_layout(neighbour.problem, problem);
      neighbour.distance = shape_distance(neighbour.problem, problem);
      found.push_back(std::move(neighbour));
    }
    const std::string asked = canonical_text(problem);
    std::sort(found.begin(), found.end(), [&](const Neighbour& a, const Neighbour& b) {
      return std::tuple(!a.exact, a.distance, a.text != asked, std::string_view(a.text)) <
             std::tuple(!b.exact, b.distance, b.text != asked, std::string_view(b.text));
    });
    return found;
  }

  static std::optional<ConfigChoice> look_up(Connection& db, const AttentionProblem& problem,
                                             const DeviceSpec& device) {
    const std::vector<Neighbour> candidates = neighbours(db, problem, device);
    for (const bool estimates : {false, true}) {
      for (const Neighbour& neighbour : candidates) {
        std::optional<ConfigChoice> choice;
        each_ranked(db, neighbour.text, device.name, device.sm_count, [&](const Measurement& row) {
          if ((row.rigor == Rigor::estimate) != estimates) return false;
          if (!infeasibility(problem, row.config, device).empty()) return false;
          choice = ConfigChoice{row.config, neighbour.exact ? ConfigOrigin::exact : ConfigOrigin::nearest_shape,
                                neighbour.text};
          if (!neighbour.exact) choice->detail += fmt::format(", at distance {:.2f}", neighbour.distance);
          choice->detail += estimates ? ", by the cost model" : fmt::format(", {:.1f} us", row.median_us);
          return true;
        });
        if (choice) return choice;
      }
    }
    return std::nullopt;
  }
};

fs::path TuningDatabase::default_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? fs::path(value) : fs::path();
  };
  if (const fs::path named = variable("ATTUNE_DATABASE"); !named.empty()) return named;
  if (const fs::path data = variable("XDG_DATA_HOME"); !data.empty()) return data / "attune" / "tuning.db";
  if (const fs::path home = variable("HOME"); !home.empty()) return home / ".local" / "share" / "attune" / "tuning.db";
  return {};
}

TuningDatabase::TuningDatabase(fs::path path) : state_(std::make_unique<State>(std::move(path))) {}
TuningDatabase::~TuningDatabase() = default;

void TuningDatabase::append(const Measurement& measurement) {
  const std::lock_guard lock(state_->mutex);
  const auto refuse = [&](const std::string& cause) {
    return Error(ErrorCode::database,
                 fmt::format("cannot store a measurement in the tuning database {}: {}", state_->path.string(), cause));
  };
  try {
    state_->current();
    if (state_->read_only) throw refuse(state_->read_only_because);
    if (measurement.created_at.empty()) {
      Measurement dated = measurement;
      dated.created_at = utc_now();
      state_->insert(dated);
    } else {
      state_->insert(measurement);
    }
    state_->answers.clear();
  } catch (const Failure& failure) {
    throw refuse(explain(failure, state_->path));
  }
}

std::vector<Measurement> TuningDatabase::find_all(const AttentionProblem& problem, const std::string& device,
                                                  int sm_count) const {
  return state_->rows("", problem, device, sm_count);
}

std::vector<Measurement> TuningDatabase::latest(const AttentionProblem& problem, const std::string& device,
                                                int sm_count) const {
  return state_->rows(
      "AND m.id = (SELECT max(n.id) FROM measurement n WHERE n.problem_id = m.problem_id AND n.device_id = m.device_id "
      "AND "
      "n.config = m.config)",
      problem, device, sm_count);
}

std::optional<Measurement> TuningDatabase::best(const AttentionProblem& problem, const std::string& device,
                                                int sm_count) const {
  return state_->ask([&](Connection& db) {
    std::optional<Measurement> first;
    State::each_ranked(db, canonical_text(problem), device, sm_count, [&](const Measurement& row) {
      first = row;
      return true;
    });
    return first;
  });
}

std::vector<TuningDatabase::Entry> TuningDatabase::list() const {
  return state_->ask([&](Connection& db) {
    Statement query(
        db,
        "SELECT p.text, d.name, d.sm_count, count(*), count(*) FILTER (WHERE m.status = 'ok') FROM measurement m "
        "JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id GROUP BY p.id, d.id "
        "ORDER BY p.text, d.name, d.sm_count");
    std::vector<Entry> entries;
    while (query.step()) {
      try {
        entries.push_back({parse_problem(query.text(0)), query.text(1), static_cast<int>(query.integer(2)),
                           query.integer(3), query.integer(4)});
      } catch (const Error&) {
        // A problem of a newer version: not for this one to show.
      }
    }
    return entries;
  });
}

std::optional<ConfigChoice> TuningDatabase::find(const AttentionProblem& problem, const DeviceSpec& device) {
  const std::lock_guard lock(state_->mutex);
  try {
    const std::tuple key(canonical_text(problem), device.name, device.sm_count);
    const auto known = state_->answers.find(key);
    if (known != state_->answers.end()) return known->second;
    const auto answer = State::look_up(state_->current(), problem, device);
    state_->answers.emplace(key, answer);
    return answer;
  } catch (const Failure&) {
    return std::nullopt;  // locked, or damaged meanwhile: a miss, and the next call asks again
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool TuningDatabase::read_only() const { return state_->read_only; }
const fs::path& TuningDatabase::path() const { return state_->path; }
const std::vector<std::string>& TuningDatabase::notes() const { return state_->notes; }

}  // namespace attune
