#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
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

/// The rows that can be chosen for a stored problem, the best first: what ranks_before() says, as a query. Preparing it
/// takes longer than running it. Throws sqlite::Failure.
class RowRanking {
 public:
  RowRanking(sqlite::Connection& db, SoundRows& sound);

  using Use = std::function<TuningDatabase::RowUse(const Measurement&)>;
  /// The first row that may be picked and is taken.
  std::optional<Measurement> first(const std::string& problem, const std::string& device, int sm_count, const Use& use);

 private:
  std::optional<Measurement> first_beside(std::vector<std::int64_t>& left_out, std::vector<std::int64_t>& unsound,
                                          const std::string& problems, const std::string& device, int sm_count,
                                          const Use& use);
  std::vector<std::int64_t> unsound_rows(const std::string& problems, const std::string& device, int sm_count);

  sqlite::Connection& db_;
  SoundRows& sound_;
  ProblemSpellings spellings_;
  sqlite::Statement query_;
};

/// TuningDatabase::ranked(). `trusted`: rows are what they were made as, and need not be read as a whole.
std::vector<TuningDatabase::Ranked> ranked_rows(sqlite::Connection& db, SoundRows& sound, bool trusted,
                                                const std::function<bool(const std::string&, int)>& wanted);

}  // namespace attune
