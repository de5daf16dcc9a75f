#include "tuner/database/database_doctor.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "tuner/database/database_checks.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/database_schema.h"
#include "tuner/database/file_system.h"
#include "tuner/database/node_agreement.h"
#include "tuner/database/problem_columns.h"
#include "tuner/database/reading_connection.h"
#include "tuner/database/sqlite.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;

constexpr int kMostComplaints = 20;              // of SQLite's own check
constexpr std::size_t kEnoughMemory = 16 << 20;  // bytes, for any check

class Doctor {
 public:
  explicit Doctor(const fs::path& path) : path_(path.string()) {}

  DatabaseDiagnosis examine() {
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) {
      find("file", "there is no such file", "name another with --database, or run `attune tune`, which begins one");
      return diagnosis_;
    }
    try {
      ask_file(path_, [&](ReadingConnection& reading) {
        diagnosis_ = DatabaseDiagnosis();
        agreement_ = NodeAgreement();
        connection_ = &reading.connection();
        check_integrity();
        if (!check_schema()) return;
        check_references();
        check_orphans();
        check_problems();
        check_hashes();
        check_races();
        check_nodes();
      });
    } catch (const Failure& failure) {
      find("file", fmt::format("it cannot be read: {}", explain(path_, failure)), advice_for(failure));
    } catch (const std::bad_alloc&) {
      // So SQLite says, too, of a row that claims to be longer than any memory. Throws again if there is none.
      const std::vector<char> enough(kEnoughMemory);
      find("integrity", "a row claims to be longer than the file", rebuild());
    }
    return diagnosis_;
  }

 private:
  // Needs no other tool, and loses nothing: the file stays, under another name.
  std::string rebuild() const {
    const std::string file = shell_word(path_), saved = shell_word(path_ + ".saved.json");
    return fmt::format(
        "save what can be read with `attune db export --database {} --output {}`, move the file away with `mv {} {}`, "
        "and bring the rows into a fresh one with `attune db import {} --database {}`",
        file, saved, file, shell_word(path_ + ".damaged"), saved, file);
  }

  std::string advice_for(const Failure& failure) const {
    switch (failure.primary()) {
      case SQLITE_CORRUPT:
        return rebuild();
      case SQLITE_NOTADB:
        return "name another file with --database; this one is not Attune's, or nothing of it is left to read";
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
        return "name another file with --database, or see to it that this one can be opened";
      case SQLITE_IOERR:
        return "see to the disk or the file system that it is on; what it gives back can be copied and examined there";
      default:
        return "run it again when nothing else uses the file";
    }
  }

  void find(std::string check, std::string what, std::string advice) {
    diagnosis_.findings.push_back({std::move(check), std::move(what), std::move(advice)});
  }

  std::string delete_with(const std::string& sql) const {
    return fmt::format("remove it with: sqlite3 {} \"{}\"", shell_word(path_), sql);
  }

  void check_integrity() {
    Statement query(*connection_, fmt::format("PRAGMA integrity_check({})", kMostComplaints));
    while (query.step()) {
      if (const std::string verdict = query.text(0); verdict != "ok") find("integrity", verdict, rebuild());
    }
  }

  // False if the tables are not ones to look into.
  bool check_schema() {
    const SchemaFacts facts = inspect_schema(*connection_);
    if (!facts.is_attunes()) {
      find("schema", "it is not a tuning database but another program's", "name another file with --database");
      return false;
    }
    if (facts.empty) return false;
    for (const SchemaDifference& difference : facts.differences) {
      find("schema", describe(difference, facts),
           facts.readable_as ? rebuild() : "move the file away: nothing in it can be read as results");
    }
    if (!facts.differences.empty()) return false;
    if (facts.is_newer()) {
      find("schema",
           fmt::format("its schema is {}, newer than {}, which this program knows", facts.version, schema_version()),
           "use the Attune that wrote it");
      return false;
    }
    if (facts.version < schema_version()) {
      find("schema", fmt::format("its schema is {}, older than {}", facts.version, schema_version()),
           fmt::format("`attune db vacuum --database {}` brings it up to date", shell_word(path_)));
      return false;
    }
    return true;
  }

  void check_references() {
    Statement query(*connection_, "PRAGMA foreign_key_check");
    while (query.step()) {
      find("foreign_keys",
           fmt::format("row {} of {} refers to a {} that does not exist", query.integer(1), query.text(0),
                       query.text(2)),
           delete_with(fmt::format("DELETE FROM {} WHERE id = {}", query.text(0), query.integer(1))));
    }
  }

  void check_orphans() {
    for (const std::string table : {"problem", "device", "provenance"}) {
      const std::string orphans = fmt::format("id NOT IN (SELECT {}_id FROM measurement)", table);
      Statement query(*connection_, fmt::format("SELECT id FROM {} WHERE {}", table, orphans));
      while (query.step()) {
        find("orphans", fmt::format("row {} of {} has no measurement", query.integer(0), table),
             delete_with(fmt::format("DELETE FROM {} WHERE {}", table, orphans)));
      }
    }
  }

  void check_problems() {
    Statement query(*connection_, fmt::format("SELECT id, text, {} FROM problem", names_of(problem_columns({}))));
    while (query.step()) {
      AttentionProblem p;
      try {
        p = parse_problem(query.text(1));
      } catch (const Error&) {
        continue;  // of a newer version
      }
      bool agrees = true;
      int number = 2;
      for (const ProblemColumn& column : problem_columns(p)) {
        const int at = number++;
        agrees &= column.text   ? query.text(at) == *column.text
                  : column.real ? query.real(at) == *column.real
                                : query.integer(at) == column.whole;
      }
      if (!agrees) {
        find("problem",
             fmt::format("the columns of problem {} contradict its text \"{}\"", query.integer(0), query.text(1)),
             "its rows would be found for the wrong shapes: " + rebuild());
      }
    }
  }

  void check_hashes() {
    Statement query(*connection_,
                    fmt::format("SELECT {}, m.id, m.content_hash FROM {} ORDER BY m.id", kRowColumns, kRowTables));
    while (query.step()) {
      ++diagnosis_.rows;
      const std::optional<Measurement> row = read_row(query);
      if (!row) ++diagnosis_.unreadable;
      const std::int64_t id = query.integer(kRowColumnCount);
      if (stored_content_hash(query) == query.text(kRowColumnCount + 1)) {
        const std::string why = row ? impossibility(*row) : "";
        if (row && why.empty()) agreement_.add(*row);
        if (!why.empty()) {
          find("values",
               fmt::format("measurement {} (\"{}\" of \"{}\") cannot have been measured and is passed over: {}", id,
                           query.text(3), query.text(0), why),
               delete_with(fmt::format("DELETE FROM measurement WHERE id = {}", id)));
        }
        continue;
      }
      find("content_hash",
           fmt::format("measurement {} (\"{}\" of \"{}\") was changed after it was stored", id, query.text(3),
                       query.text(0)),
           delete_with(fmt::format("DELETE FROM measurement WHERE id = {}", id)) + ", and tune that problem again");
    }
  }

  // In a race one config has a place. That a place has a race is told with the values.
  void check_races() {
    Statement shared(*connection_,
                     "SELECT m.race, m.place, p.text, count(*), min(m.id), max(m.id) FROM measurement m "
                     "JOIN problem p ON p.id = m.problem_id "
                     "WHERE m.place > 0 GROUP BY m.problem_id, m.device_id, m.race, m.place HAVING count(*) > 1");
    while (shared.step()) {
      find("race",
           fmt::format("{} measurements ({} to {}) share place {} in the race \"{}\" of \"{}\"", shared.integer(3),
                       shared.integer(4), shared.integer(5), shared.integer(1), shared.text(0), shared.text(2)),
           "tune that problem again: the newest race decides");
    }
  }

  // By the rows of check_hashes(), those that can be believed.
  void check_nodes() {
    for (const DeviatingNode& gpu : agreement_.deviating()) {
      const auto known = [](const std::string& text) { return text.empty() ? "unknown" : printable(text); };
      find(
          "node",
          fmt::format("GPU {} of host {} ({}) takes {:.2f} of the time of {} other{} (median over {} configs that both "
                      "measured){}",
                      known(gpu.node.gpu_uuid), known(gpu.node.host), gpu.device, gpu.time_ratio, gpu.others,
                      gpu.others == 1 ? "" : "s", gpu.compared,
                      gpu.settings.empty() ? "" : "; its settings differ: " + printable(gpu.settings)),
          "see to that GPU's power limit, clocks, cooling and other load, then tune its problems again on another: "
          "what it measured is still picked");
    }
  }

  const std::string path_;
  NodeAgreement agreement_;
  Connection* connection_ = nullptr;  // of the file while it is asked
  DatabaseDiagnosis diagnosis_;
};

}  // namespace

DatabaseDiagnosis examine_database(const fs::path& path) { return Doctor(path).examine(); }

}  // namespace attune
