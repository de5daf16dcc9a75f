#include "tuner/database/tuning_database.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <unordered_set>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/lazy_value.h"
#include "runtime/system/state_mutex.h"
#include "tuner/database/database_file.h"
#include "tuner/database/database_rows.h"
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

}  // namespace

struct TuningDatabase::State {
  State(fs::path path, DatabaseFile::Use use, std::string_view image = {})
      : file(std::move(path), use, image), embedded(!image.empty()) {}

  DatabaseFile file;
  const bool embedded;
  std::atomic<std::uint64_t> generation{0};
  StateMutex told_mutex;       // guards what follows
  std::set<std::string> told;  // hashes of rows that were passed over
  std::vector<std::string> to_tell;

  // Logs what a question left to be told: who hears of it may wait for what a caller holds, and for a fork.
  void tell() {
    std::vector<std::string> messages;
    {
      const std::lock_guard lock(told_mutex);
      messages.swap(to_tell);
    }
    for (const std::string& message : messages) attune::log(LogLevel::warning, message);
  }

  // Runs a query of rows, which may be put several times; a failure becomes an Error.
  template <typename Query>
  auto ask(Query query) {
    try {
      std::optional<std::invoke_result_t<Query, Connection&>> answer;
      file.ask([&](Connection& db) { answer = query(db); });
      tell();
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
    }
    ++generation;
    return appended;
  }

  // What is told of a row, once.
  template <typename Message>
  void note(const std::string& hash, const Message& message) {
    const std::lock_guard lock(told_mutex);
    if (told.count(hash) > 0) return;
    to_tell.push_back(message());
    told.insert(hash);
  }

  // The row that a query of kRowColumns, m.content_hash and m.id stands at, if it can be believed; else `passed_over`
  // gets its id.
  std::optional<Measurement> sound_row(const Statement& query, std::vector<std::int64_t>& passed_over) {
    const std::string hash = query.text(kRowColumnCount);
    std::string why;
    std::optional<Measurement> row;
    if (stored_content_hash(query) != hash) {
      why = "it was changed after it was stored";
    } else {
      row = read_row(query);
      if (!row) return std::nullopt;  // of a newer version
      why = impossibility(*row);
      if (why.empty()) return row;
    }
    passed_over.push_back(query.integer(kRowColumnCount + 1));
    note(hash, [&] {
      return fmt::format(
          "{}: measurement {} (\"{}\" of \"{}\" on {}) is passed over: {}. `attune db doctor --database {}` says more",
          file.path().string(), query.integer(kRowColumnCount + 1), query.text(3), query.text(0), query.text(1), why,
          file.path().string());
    });
    return std::nullopt;
  }

  std::vector<Measurement> rows(const AttentionProblem& problem, const std::string& device, int sm_count) {
    return ask([&](Connection& db) {
      Statement query(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE p.text = ? AND d.name = ? AND "
                                      "d.sm_count = ? ORDER BY {}",
                                      kRowColumns, kRowTables, kOldestFirst));
      query.bind(canonical_text(problem)).bind(device).bind(sm_count);
      std::vector<Measurement> found;
      std::vector<std::int64_t> passed_over;
      while (query.step()) {
        if (auto row = sound_row(query, passed_over)) found.push_back(std::move(*row));
      }
      return found;
    });
  }

  // As much of a row as says whether it stands for its config, and before whom.
  struct RankedRow {
    Ranked ranked;
    std::int64_t id = 0, rigor = 0, sequence = 0, place = 0;
    bool ok = false;
    std::string race, created_at, hash;
    double ranking_us = 0;

    auto question() const { return std::tie(ranked.problem, ranked.device, ranked.sm_count); }
    // Which row stands for a config: the newest of its highest rigor.
    auto standing() const { return std::tie(rigor, sequence, created_at, hash); }
    bool can_be_chosen() const { return ok && ranking_us > 0; }
    // ranks_before(), of two rows of a question.
    bool ranks_before(const RankedRow& other) const {
      if (rigor != other.rigor) return rigor > other.rigor;
      if (race.empty() != other.race.empty()) return other.race.empty();
      if (!race.empty()) {
        if (sequence != other.sequence) return sequence > other.sequence;
        if (race != other.race) return race > other.race;
      }
      return std::tie(place, ranking_us, ranked.config) < std::tie(other.place, other.ranking_us, other.ranked.config);
    }
  };

  // Sorting here takes a tenth of the time of a query that does it.
  std::vector<Ranked> ranked(Connection& db, const std::function<bool(const std::string&, int)>& wanted) {
    std::vector<std::int64_t> devices;
    Statement device(db, "SELECT id, name, sm_count FROM device");
    while (device.step()) {
      if (wanted(device.text(1), static_cast<int>(device.integer(2)))) devices.push_back(device.integer(0));
    }
    const std::string of = fmt::format("[{}]", fmt::join(devices, ","));
    std::vector<RankedRow> all;
    Statement query(
        db,
        "SELECT m.id, p.text, d.name, d.sm_count, m.config, m.status = 'ok', m.rigor, m.race, m.sequence, "
        "m.created_at, m.content_hash, m.place, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END "
        "FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id "
        "WHERE m.device_id IN (SELECT value FROM json_each(?))");
    query.bind(of);
    while (query.step()) {
      RankedRow& row = all.emplace_back();
      row.id = query.integer(0);
      row.rigor = query.integer(6);
      row.ranked = {query.text(1), query.text(2), static_cast<int>(query.integer(3)), query.text(4), row.rigor == 0};
      row.ok = query.integer(5) != 0;
      row.race = query.text(7);
      row.sequence = query.integer(8);
      row.created_at = query.text(9);
      row.hash = query.text(10);
      row.place = query.integer(11);
      row.ranking_us = query.real(12);
    }
    std::vector<Ranked> found;
    std::unordered_set<std::int64_t> passed_over;
    if (!chosen(db, all, passed_over, found)) {
      // One that does not count may have kept an older row of its config from standing.
      std::vector<std::int64_t> unsound;
      Statement whole(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE d.id IN (SELECT value FROM "
                                      "json_each(?))",
                                      kRowColumns, kRowTables));
      whole.bind(of);
      while (whole.step()) sound_row(whole, unsound);
      passed_over.insert(unsound.begin(), unsound.end());
      chosen(db, all, passed_over, found);
    }
    return found;
  }

  // Those that can be chosen, in their order; false if one of them is not sound.
  bool chosen(Connection& db, const std::vector<RankedRow>& all, const std::unordered_set<std::int64_t>& passed_over,
              std::vector<Ranked>& found) {
    std::vector<const RankedRow*> rows;
    for (const RankedRow& row : all) {
      if (passed_over.count(row.id) == 0) rows.push_back(&row);
    }
    std::sort(rows.begin(), rows.end(), [](const RankedRow* a, const RankedRow* b) {
      const auto of_config = [](const RankedRow* row) {
        return std::tuple_cat(row->question(), std::tie(row->ranked.config));
      };
      return of_config(a) != of_config(b) ? of_config(a) < of_config(b) : a->standing() > b->standing();
    });
    const auto same_config = [](const RankedRow* a, const RankedRow* b) {
      return a->question() == b->question() && a->ranked.config == b->ranked.config;
    };
    rows.erase(std::unique(rows.begin(), rows.end(), same_config), rows.end());
    std::erase_if(rows, [](const RankedRow* row) { return !row->can_be_chosen(); });
    std::sort(rows.begin(), rows.end(), [](const RankedRow* a, const RankedRow* b) {
      return a->question() != b->question() ? a->question() < b->question() : a->ranks_before(*b);
    });
    found.clear();
    // What is part of the program is what it was made as.
    if (embedded) {
      for (const RankedRow* row : rows) found.push_back(row->ranked);
      return true;
    }
    std::vector<std::int64_t> unsound;
    Statement whole(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE m.id = ?", kRowColumns, kRowTables));
    for (const RankedRow* row : rows) {
      whole.bind(row->id);
      if (whole.step()) {
        if (const auto sound = sound_row(whole, unsound)) {
          found.push_back(row->ranked);
          found.back().config = canonical_text(sound->config);
        }
      }
      whole.reset();
    }
    return unsound.empty();
  }

  // The rows that can be chosen for a stored problem, the best first: what ranks_before() says, as a query. Preparing
  // it takes longer than running it.
  class Ranking {
   public:
    Ranking(State& state, Connection& db) : state_(state), db_(db), query_(db, text()) {}

    // The first row that is wanted and sound.
    template <typename Wanted>
    std::optional<Measurement> first(std::string_view problem_text, const std::string& device, int sm_count,
                                     Wanted wanted) {
      std::vector<std::int64_t> unsound;
      auto found = first_beside(unsound, problem_text, device, sm_count, wanted);
      if (unsound.empty()) return found;
      // One that does not count may have stood before an older row of its config, or have kept it from standing.
      unsound = unsound_rows(problem_text, device, sm_count);
      return first_beside(unsound, problem_text, device, sm_count, wanted);
    }

   private:
    // Without the rows of these ids, to which those that are met and unsound are added.
    template <typename Wanted>
    std::optional<Measurement> first_beside(std::vector<std::int64_t>& unsound, std::string_view problem_text,
                                            const std::string& device, int sm_count, Wanted wanted) {
      query_.bind(problem_text).bind(device).bind(sm_count).bind(fmt::format("[{}]", fmt::join(unsound, ",")));
      std::optional<Measurement> found;
      while (!found && query_.step()) {
        found = state_.sound_row(query_, unsound);
        if (found && !wanted(*found)) found.reset();
      }
      query_.reset();
      return found;
    }

    std::vector<std::int64_t> unsound_rows(std::string_view problem_text, const std::string& device, int sm_count) {
      Statement query(db_, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE p.text = ? AND d.name = ? AND "
                                       "d.sm_count = ?",
                                       kRowColumns, kRowTables));
      query.bind(problem_text).bind(device).bind(sm_count);
      std::vector<std::int64_t> unsound;
      while (query.step()) state_.sound_row(query, unsound);
      return unsound;
    }

    static const std::string& text() {
      static constinit LazyValue<const std::string> query;
      return query.get([] {
        return fmt::format(
            R"sql(
WITH standing AS (   -- each config by the newest row of its highest rigor
  SELECT m.id, row_number() OVER (PARTITION BY m.config ORDER BY m.rigor DESC, {}) AS standing
  FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  WHERE p.text = ? AND d.name = ? AND d.sm_count = ? AND m.id NOT IN (SELECT value FROM json_each(?))
), chosen AS (
  SELECT m.*, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END AS ranking_us
  FROM measurement m JOIN standing s ON s.id = m.id
  WHERE s.standing = 1 AND m.status = 'ok'
)
SELECT {}, m.content_hash, m.id FROM chosen m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  JOIN provenance v ON v.id = m.provenance_id
WHERE m.ranking_us > 0
ORDER BY m.rigor DESC, m.race = '', CASE m.race WHEN '' THEN 0 ELSE m.sequence END DESC, m.race DESC, m.place,
  m.ranking_us, m.config
)sql",
            kNewestFirst, kRowColumns);
      });
    }

    State& state_;
    Connection& db_;
    Statement query_;
  };
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

TuningDatabase::~TuningDatabase() = default;

void TuningDatabase::append(const Measurement& measurement) { append(std::vector{measurement}); }

void TuningDatabase::append(const std::vector<Measurement>& measurements) {
  state_->store(measurements, [](Connection& db, Measurement row) {
    if (row.created_at.empty()) row.created_at = utc_now();
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
    return insert_row(db, row);
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
    return State::Ranking(*state_, db).first(canonical_text(problem), device, sm_count, [](const Measurement&) {
      return true;
    });
  });
}

std::vector<TuningDatabase::TunedShape> TuningDatabase::near(const AttentionProblem& problem, int sm_count) const {
  return state_->ask([&](Connection& db) { return tuned_shapes_near(db, problem, sm_count); });
}

std::vector<std::optional<Measurement>> TuningDatabase::first_of(
    const std::vector<TunedShape>& shapes, const std::function<bool(const Measurement&)>& wanted) const {
  return state_->ask([&](Connection& db) {
    State::Ranking ranking(*state_, db);
    std::vector<std::optional<Measurement>> rows;
    for (const TunedShape& shape : shapes)
      rows.push_back(ranking.first(shape.problem, shape.device, shape.sm_count, wanted));
    return rows;
  });
}

std::vector<KernelConfig> TuningDatabase::winners_of_neighbours(const AttentionProblem& problem,
                                                                const std::string& device, int sm_count,
                                                                int count) const {
  return state_->ask([&](Connection& db) {
    State::Ranking ranking(*state_, db);
    std::vector<KernelConfig> winners;
    for (const TunedShape& shape : tuned_shapes_near(db, problem, sm_count)) {
      if (static_cast<int>(winners.size()) >= count) break;
      if (shape.same_problem || shape.device != device || shape.sm_count != sm_count) continue;
      const auto best = ranking.first(shape.problem, device, sm_count, [](const Measurement&) { return true; });
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
                    "JOIN provenance v ON v.id = m.provenance_id GROUP BY p.id, d.id "
                    "ORDER BY p.text, d.name, d.sm_count");
    query.bind(kUntilARace);
    std::vector<Entry> entries;
    while (query.step()) {
      try {
        entries.push_back({parse_problem(query.text(0)), query.text(1), static_cast<int>(query.integer(2)),
                           query.integer(3), query.integer(4), query.integer(5)});
      } catch (const Error&) {
        // A problem of a newer version: not for this one to show.
      }
    }
    return entries;
  });
}

std::vector<TuningDatabase::Ranked> TuningDatabase::ranked(
    const std::function<bool(const std::string& device, int sm_count)>& wanted) const {
  return state_->ask([&](Connection& db) { return state_->ranked(db, wanted); });
}

std::uint64_t TuningDatabase::generation() const { return state_->generation; }

bool TuningDatabase::read_only() const { return state_->file.read_only(); }
const std::string& TuningDatabase::unreadable_because() const { return state_->file.unreadable_because(); }
const fs::path& TuningDatabase::path() const { return state_->file.path(); }
const std::vector<std::string>& TuningDatabase::notes() const { return state_->file.notes(); }

}  // namespace attune
