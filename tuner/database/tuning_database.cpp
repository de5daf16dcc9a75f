#include "tuner/database/tuning_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>

#include "generator/error.h"
#include "tuner/database/database_file.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/row_ranking.h"
#include "tuner/database/sound_rows.h"
#include "tuner/database/sqlite.h"
#include "tuner/database/tuned_shapes.h"
#include "tuner/search/race.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;
using sqlite::Transaction;

TuningDatabase::RowUse take_any(const Measurement&) { return TuningDatabase::RowUse::take; }

}  // namespace

struct TuningDatabase::State {
  State(fs::path path, DatabaseFile::Use use, std::string_view image = {})
      : file(path, use, image),
        embedded(!image.empty()),
        shipped(use == DatabaseFile::Use::shipped),
        sound(std::move(path)) {}
  State(const fs::path& path, std::string image)
      : kept(std::move(image)),
        file(path, DatabaseFile::Use::shipped, kept),
        embedded(true),
        shipped(true),
        sound(path) {}

  const std::string kept;  // the bytes of an image that is no part of the program
  DatabaseFile file;
  const bool embedded, shipped;
  std::atomic<std::uint64_t> generation{0};
  SoundRows sound;
  FirstRows first_rows;  // of a shipped database, which does not change; used by what ask() runs alone

  // Runs a query of rows, which may be put several times; a failure becomes an Error.
  template <typename Query>
  auto ask(Query query) {
    try {
      std::optional<std::invoke_result_t<Query, Connection&>> answer;
      file.ask([&](Connection& db) { answer = query(db); });
      sound.tell();
      return std::move(*answer);
    } catch (const Failure& failure) {
      throw Error(ErrorCode::database,
                  fmt::format("cannot read the tuning database {}: {}", file.path().string(), file.explain(failure)));
    }
  }

  NotStored refusal(NotStored::Fault fault, std::size_t rows, const std::string& cause) const {
    return NotStored(fault, fmt::format("cannot store {} in the tuning database {}: {}",
                                        rows == 1 ? "a measurement" : "measurements", file.path().string(), cause));
  }

  // Inserts each row in one transaction; `insert` says whether it was new.
  template <typename Insert>
  Appended store(const std::vector<Measurement>& measurements, Insert insert) {
    if (file.read_only()) throw refusal(NotStored::Fault::database, measurements.size(), file.read_only_because());
    Appended appended;
    try {
      file.change([&](Connection& db) {
        Transaction transaction(db);
        for (const Measurement& measurement : measurements)
          ++(insert(db, measurement) ? appended.added : appended.known);
        transaction.commit();
      });
    } catch (const Failure& failure) {
      const bool row = failure.primary() == SQLITE_CONSTRAINT || failure.primary() == SQLITE_TOOBIG ||
                       failure.primary() == SQLITE_MISMATCH;
      throw refusal(row ? NotStored::Fault::row : NotStored::Fault::database, measurements.size(),
                    file.explain(failure));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      throw refusal(NotStored::Fault::row, measurements.size(), error.what());
    }
    ++generation;
    return appended;
  }

  std::vector<Measurement> rows(const AttentionProblem& problem, const std::string& device, int sm_count) {
    return ask([&](Connection& db) {
      Statement query(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE p.id IN (SELECT value FROM "
                                      "json_each(?)) AND d.name = ? AND d.sm_count = ? ORDER BY {}",
                                      kRowColumns, kRowTables, kOldestFirst));
      query.bind(ProblemSpellings(db).ids_of(canonical_text(problem))).bind(device).bind(sm_count);
      std::vector<Measurement> found;
      std::vector<std::int64_t> passed_over;
      while (query.step()) {
        if (auto row = sound.read(query, passed_over)) found.push_back(std::move(*row));
      }
      return found;
    });
  }
};

fs::path TuningDatabase::default_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? fs::path(value) : fs::path();
  };
  if (fs::path named = variable("ATTUNE_DATABASE"); !named.empty()) return named;
  if (const fs::path data = variable("XDG_DATA_HOME"); !data.empty()) return data / "attune" / "tuning.db";
  if (const fs::path home = variable("HOME"); !home.empty()) return home / ".local" / "share" / "attune" / "tuning.db";
  return {};
}

TuningDatabase::TuningDatabase(fs::path path)
    : state_(std::make_unique<State>(std::move(path), DatabaseFile::Use::write)) {}
TuningDatabase::TuningDatabase(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::shared_ptr<TuningDatabase> TuningDatabase::open_for_reading(fs::path path) {
  auto state = std::make_unique<State>(std::move(path), DatabaseFile::Use::read);
  return std::shared_ptr<TuningDatabase>(new TuningDatabase(std::move(state)));
}

std::shared_ptr<TuningDatabase> TuningDatabase::open_shipped(fs::path path) {
  auto state = std::make_unique<State>(std::move(path), DatabaseFile::Use::shipped);
  return std::shared_ptr<TuningDatabase>(new TuningDatabase(std::move(state)));
}

std::shared_ptr<TuningDatabase> TuningDatabase::open_embedded(std::string_view image, const std::string& name) {
  auto state = std::make_unique<State>(name, DatabaseFile::Use::shipped, image);
  return std::shared_ptr<TuningDatabase>(new TuningDatabase(std::move(state)));
}

std::shared_ptr<TuningDatabase> TuningDatabase::open_image(std::string image, const std::string& name) {
  auto state = std::make_unique<State>(name, std::move(image));
  return std::shared_ptr<TuningDatabase>(new TuningDatabase(std::move(state)));
}

TuningDatabase::~TuningDatabase() = default;

void TuningDatabase::append(const Measurement& measurement) { append(std::vector{measurement}); }

void TuningDatabase::append(const std::vector<Measurement>& measurements) {
  state_->store(measurements, [](Connection& db, Measurement row) {
    if (row.created_at.empty()) row.created_at = utc_now();
    row = in_stored_form(std::move(row));
    if (is_stored(db, row)) return false;
    row.sequence = next_sequence(db, row);
    return insert_row(db, row);
  });
}

TuningDatabase::Appended TuningDatabase::append_all(const std::vector<Measurement>& measurements) {
  return state_->store(measurements, [this](Connection& db, const Measurement& row) {
    if (row.sequence < 0 || row.sequence > kGreatestForeignSequence) {
      throw state_->refusal(NotStored::Fault::row, 1,
                            fmt::format("its sequence is {}, and {} is the greatest that is taken over", row.sequence,
                                        kGreatestForeignSequence));
    }
    return insert_row(db, in_stored_form(row));
  });
}

std::vector<Measurement> TuningDatabase::find_all(const AttentionProblem& problem, const std::string& device,
                                                  int sm_count) const {
  return state_->rows(problem, device, sm_count);
}

std::vector<Measurement> TuningDatabase::latest(const AttentionProblem& problem, const std::string& device,
                                                int sm_count) const {
  std::vector<Measurement> rows = state_->rows(problem, device, sm_count);
  std::unordered_set<std::string> seen;
  std::vector<Measurement> latest;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (seen.insert(canonical_text(row->config)).second) latest.push_back(std::move(*row));
  }
  std::reverse(latest.begin(), latest.end());
  return latest;
}

std::optional<Measurement> TuningDatabase::best(const AttentionProblem& problem, const std::string& device,
                                                int sm_count) const {
  return state_->ask([&](Connection& db) {
    return RowRanking(db, state_->sound).first(canonical_text(problem), device, sm_count, take_any);
  });
}

std::vector<TuningDatabase::TunedShape> TuningDatabase::near(const AttentionProblem& problem, int sm_count) const {
  return state_->ask([&](Connection& db) { return tuned_shapes_near(db, simplest_mask(problem), sm_count); });
}

std::vector<std::optional<Measurement>> TuningDatabase::first_of(
    const std::vector<TunedShape>& shapes, const std::function<RowUse(const Measurement&)>& use) const {
  return state_->ask([&](Connection& db) {
    RowRanking ranking(db, state_->sound, state_->shipped ? &state_->first_rows : nullptr);
    std::vector<std::optional<Measurement>> rows;
    for (const TunedShape& shape : shapes)
      rows.push_back(ranking.first(shape.problem, shape.device, shape.sm_count, use));
    return rows;
  });
}

std::vector<KernelConfig> TuningDatabase::winners_of_neighbours(const AttentionProblem& problem,
                                                                const std::string& device, int sm_count,
                                                                int count) const {
  return state_->ask([&](Connection& db) {
    RowRanking ranking(db, state_->sound);
    std::vector<KernelConfig> winners;
    for (const TunedShape& shape : tuned_shapes_near(db, simplest_mask(problem), sm_count)) {
      if (static_cast<int>(winners.size()) >= count) break;
      if (shape.same_problem || shape.device != device || shape.sm_count != sm_count) continue;
      const auto best = ranking.first(shape.problem, device, sm_count, take_any);
      if (best && std::find(winners.begin(), winners.end(), best->config) == winners.end())
        winners.push_back(best->config);
    }
    return winners;
  });
}

std::vector<TuningDatabase::Entry> TuningDatabase::list() const {
  return state_->ask([&](Connection& db) {
    Statement query(db,
                    "SELECT p.text, d.name, d.sm_count, count(*), count(*) FILTER (WHERE m.status = 'ok'), "
                    "count(*) FILTER (WHERE m.place > 0 AND v.protocol NOT LIKE '%' || ?) FROM measurement m "
                    "JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id "
                    "JOIN provenance v ON v.id = m.provenance_id GROUP BY p.id, d.id");
    query.bind(kUntilARace);
    // By canonical text, which may be stored in other spellings, too.
    std::map<std::tuple<std::string, std::string, int>, Entry> entries;
    while (query.step()) {
      try {
        const AttentionProblem problem = parse_problem(query.text(0));
        const std::string device = query.text(1);
        const int sm_count = query.int32(2);
        Entry& entry =
            entries.try_emplace({canonical_text(problem), device, sm_count}, Entry{problem, device, sm_count})
                .first->second;
        entry.rows += query.integer(3);
        entry.ok += query.integer(4);
        entry.raced += query.integer(5);
      } catch (const Error&) {
        // A problem of a newer version: not for this one to show.
      }
    }
    std::vector<Entry> listed;
    for (auto& [key, entry] : entries) listed.push_back(std::move(entry));
    return listed;
  });
}

std::vector<TuningDatabase::Ranked> TuningDatabase::ranked(
    const std::function<bool(const std::string& device, int sm_count)>& wanted) const {
  return state_->ask([&](Connection& db) { return ranked_rows(db, state_->sound, state_->embedded, wanted); });
}

std::uint64_t TuningDatabase::generation() const { return state_->generation; }

bool TuningDatabase::read_only() const { return state_->file.read_only(); }
const std::string& TuningDatabase::unreadable_because() const { return state_->file.unreadable_because(); }
const fs::path& TuningDatabase::path() const { return state_->file.path(); }
const DatabaseLabel& TuningDatabase::label() const { return state_->file.label(); }
const std::vector<std::string>& TuningDatabase::notes() const { return state_->file.notes(); }

}  // namespace attune
