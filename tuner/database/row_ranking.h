#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tuner/database/sound_rows.h"
#include "tuner/database/sqlite.h"
#include "tuner/database/tuning_database.h"

namespace attune {

/// Which rows of the table of problems mean a problem, whatever their spelling.
class ProblemSpellings {
 public:
  explicit ProblemSpellings(sqlite::Connection& db);

  /// Their ids, of a canonical text: a JSON array, for json_each().
  std::string ids_of(const std::string& text);
  /// The canonical text of a row that is spelled otherwise; null for any other.
  const std::string* respelled(std::int64_t id) const;

 private:
  sqlite::Statement by_text_;  // prepared once: a pick asks for hundreds of shapes
  std::map<std::string, std::vector<std::int64_t>> others_;
  std::map<std::int64_t, std::string> texts_;
};

/// The first rows of shapes in the order of RowRanking, as they were read once: for a database that does not change. A
/// pick for another length asks the same neighbours again, and the query takes longer than all the rest of it.
class FirstRows {
 public:
  struct Rows {
    std::vector<Measurement> rows;
    bool all = false;  ///< there are no others
  };
  using Shape = std::tuple<std::string, std::string, int>;  ///< problem, device, SMs

  const Rows* find(const Shape& shape) const;
  void keep(const Shape& shape, Rows rows);

 private:
  std::map<Shape, Rows> by_shape_;
};

/// The rows that can be chosen for a stored problem, the best first: what ranks_before() says, as a query. Preparing it
/// takes longer than running it. Throws sqlite::Failure.
class RowRanking {
 public:
  /// `known`: what was read of this database before; null: nothing is remembered.
  RowRanking(sqlite::Connection& db, SoundRows& sound, FirstRows* known = nullptr);

  using Use = std::function<TuningDatabase::RowUse(const Measurement&)>;
  /// The first row that may be picked and is taken.
  std::optional<Measurement> first(const std::string& problem, const std::string& device, int sm_count, const Use& use);

 private:
  std::optional<Measurement> first_beside(std::vector<std::int64_t>& left_out, std::vector<std::int64_t>& unsound,
                                          const std::string& problems, const std::string& device, int sm_count,
                                          const Use& use, FirstRows::Rows* read);
  std::vector<std::int64_t> unsound_rows(const std::string& problems, const std::string& device, int sm_count);

  sqlite::Connection& db_;
  SoundRows& sound_;
  FirstRows* const known_;
  struct Queries {
    explicit Queries(sqlite::Connection& db);
    ProblemSpellings spellings;
    sqlite::Statement ranking;
  };
  std::optional<Queries> queries_;  // from the first question on that known_ does not answer
};

/// TuningDatabase::ranked(). `trusted`: rows are what they were made as, and need not be read as a whole.
std::vector<TuningDatabase::Ranked> ranked_rows(sqlite::Connection& db, SoundRows& sound, bool trusted,
                                                const std::function<bool(const std::string&, int)>& wanted);

}  // namespace attune
