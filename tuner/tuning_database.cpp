#include "tuner/tuning_database.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database_file.h"
#include "tuner/database_rows.h"
#include "tuner/sqlite.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;
using sqlite::Transaction;

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
  explicit State(fs::path path) : file(std::move(path)) {}

  mutable std::mutex mutex;  // guards what follows
  DatabaseFile file;
  std::map<std::tuple<std::string, std::string, int>, std::optional<ConfigChoice>> answers;

  // Runs a query of rows; a failure becomes an Error.
  template <typename Query>
  auto ask(Query query) {
    const std::lock_guard lock(mutex);
    try {
      return query(file.connection());
    } catch (const Failure& failure) {
      throw Error(ErrorCode::database,
                  fmt::format("cannot read the tuning database {}: {}", file.path().string(), file.explain(failure)));
    }
  }

  std::vector<Measurement> rows(const std::string& from_measurements, const AttentionProblem& problem,
                                const std::string& device, int sm_count) {
    return ask([&](Connection& db) {
      Statement query(
          db, fmt::format(
                  "SELECT {} FROM {} WHERE p.text = ? AND d.name = ? AND d.sm_count = ? {} ORDER BY m.created_at, m.id",
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
  SELECT m.id, row_number() OVER (PARTITION BY m.config ORDER BY m.rigor DESC, m.created_at DESC, m.id DESC) AS standing
  FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  WHERE p.text = ? AND d.name = ? AND d.sm_count = ?
), chosen AS (
  SELECT m.*, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END AS ranking_us
  FROM measurement m JOIN standing s ON s.id = m.id
  WHERE s.standing = 1 AND m.status = 'ok'
)
SELECT {} FROM chosen m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  JOIN provenance v ON v.id = m.provenance_id
WHERE m.ranking_us > 0
ORDER BY m.rigor DESC, m.race DESC, m.place, m.ranking_us, m.config
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

  static std::vector<Neighbour> neighbours(Connection& db, const AttentionProblem& problem, const std::string& device,
                                           int sm_count) {
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
        .bind(device)
        .bind(sm_count);
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
    const std::vector<Neighbour> candidates = neighbours(db, problem, device.name, device.sm_count);
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
  Measurement dated = measurement;
  if (dated.created_at.empty()) dated.created_at = utc_now();
  append_all({std::move(dated)});
}

TuningDatabase::Appended TuningDatabase::append_all(const std::vector<Measurement>& measurements) {
  const std::lock_guard lock(state_->mutex);
  const auto refuse = [&](const std::string& cause) {
    return Error(ErrorCode::database, fmt::format("cannot store {} in the tuning database {}: {}",
                                                  measurements.size() == 1 ? "a measurement" : "measurements",
                                                  state_->file.path().string(), cause));
  };
  try {
    Connection& db = state_->file.connection();
    if (state_->file.read_only()) throw refuse(state_->file.read_only_because());
    Appended appended;
    Transaction transaction(db);
    for (const Measurement& measurement : measurements) {
      if (insert_row(db, measurement)) {
        ++appended.added;
      } else {
        ++appended.known;
      }
    }
    transaction.commit();
    state_->answers.clear();
    return appended;
  } catch (const Failure& failure) {
    throw refuse(state_->file.explain(failure));
  }
}

std::vector<Measurement> TuningDatabase::find_all(const AttentionProblem& problem, const std::string& device,
                                                  int sm_count) const {
  return state_->rows("", problem, device, sm_count);
}

std::vector<Measurement> TuningDatabase::latest(const AttentionProblem& problem, const std::string& device,
                                                int sm_count) const {
  return state_->rows(
      "AND m.id = (SELECT n.id FROM measurement n WHERE n.problem_id = m.problem_id AND n.device_id = m.device_id "
      "AND n.config = m.config ORDER BY n.created_at DESC, n.id DESC LIMIT 1)",
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

std::vector<KernelConfig> TuningDatabase::winners_of_neighbours(const AttentionProblem& problem,
                                                                const std::string& device, int sm_count,
                                                                int count) const {
  return state_->ask([&](Connection& db) {
    std::vector<KernelConfig> winners;
    for (const State::Neighbour& neighbour : State::neighbours(db, problem, device, sm_count)) {
      if (static_cast<int>(winners.size()) >= count) break;
      if (neighbour.exact) continue;
      State::each_ranked(db, neighbour.text, device, sm_count, [&](const Measurement& row) {
        if (std::find(winners.begin(), winners.end(), row.config) == winners.end()) winners.push_back(row.config);
        return true;
      });
    }
    return winners;
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
    const auto answer = State::look_up(state_->file.connection(), problem, device);
    state_->answers.emplace(key, answer);
    return answer;
  } catch (const Failure&) {
    return std::nullopt;  // locked, or damaged meanwhile: a miss, and the next call asks again
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool TuningDatabase::read_only() const { return state_->file.read_only(); }
const fs::path& TuningDatabase::path() const { return state_->file.path(); }
const std::vector<std::string>& TuningDatabase::notes() const { return state_->file.notes(); }

}  // namespace attune
