#include "tuner/database/row_ranking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "generator/lazy_value.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/tuned_shapes.h"
#include "tuner/database/utc_time.h"

namespace attune {
namespace {

using sqlite::Connection;
using sqlite::Statement;
using Ranked = TuningDatabase::Ranked;
using RowUse = TuningDatabase::RowUse;

const std::string& ranking_query() {
  static constinit LazyValue<const std::string> query;
  return query.get([] {
    return fmt::format(
        R"sql(
WITH standing AS (   -- each config by the newest row of its highest rigor
  SELECT m.id, row_number() OVER (PARTITION BY m.config ORDER BY m.rigor DESC, {}) AS standing,
    count(*) FILTER (WHERE m.status = 'ok') OVER (PARTITION BY m.config) AS ok
  FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  WHERE p.id IN (SELECT value FROM json_each(?)) AND d.name = ? AND d.sm_count = ?
    AND m.id NOT IN (SELECT value FROM json_each(?))
), chosen AS (
  SELECT m.*, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END AS ranking_us
  FROM measurement m JOIN standing s ON s.id = m.id
  WHERE s.standing = 1 AND s.ok > 0   -- failures that keep an older row from standing, too
)
SELECT {}, m.content_hash, m.id FROM chosen m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  JOIN provenance v ON v.id = m.provenance_id
WHERE m.status <> 'ok' OR m.ranking_us > 0
ORDER BY m.status = 'ok', m.rigor DESC, m.race = '', CASE m.race WHEN '' THEN 0 ELSE m.sequence END DESC, time_order(m.race) DESC,
  m.place,
  m.ranking_us, m.config
)sql",
        kNewestFirst, kRowColumns);
  });
}

// As much of a row as says whether it stands for its config, and before whom.
struct RankedRow {
  TuningDatabase::Ranked ranked;
  std::int64_t id = 0, rigor = 0, sequence = 0, place = 0;
  bool ok = false;
  std::string race, created_at, hash;
  double ranking_us = 0;

  auto question() const { return std::tie(ranked.problem, ranked.device, ranked.sm_count); }
  // What a row stands for, beside its question, and which of several does: the newest of the highest rigor.
  auto identity() const { return std::tie(ranked.config, ranked.source_hash, ranked.compiler, ranked.attune_version); }
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
    return std::tuple_cat(std::tie(place, ranking_us), identity()) <
           std::tuple_cat(std::tie(other.place, other.ranking_us), other.identity());
  }
};

// Those that can be chosen, in their order; false if one of them is not sound.
bool chosen(Connection& db, SoundRows& sound, bool trusted, const std::vector<RankedRow>& all,
            const std::unordered_set<std::int64_t>& passed_over, std::vector<Ranked>& found) {
  std::vector<const RankedRow*> rows;
  for (const RankedRow& row : all) {
    if (passed_over.count(row.id) == 0) rows.push_back(&row);
  }
  std::sort(rows.begin(), rows.end(), [](const RankedRow* a, const RankedRow* b) {
    const auto of_config = [](const RankedRow* row) { return std::tuple_cat(row->question(), row->identity()); };
    return of_config(a) != of_config(b) ? of_config(a) < of_config(b) : a->standing() > b->standing();
  });
  const auto same_config = [](const RankedRow* a, const RankedRow* b) {
    return a->question() == b->question() && a->identity() == b->identity();
  };
  rows.erase(std::unique(rows.begin(), rows.end(), same_config), rows.end());
  std::erase_if(rows, [](const RankedRow* row) { return !row->can_be_chosen(); });
  std::sort(rows.begin(), rows.end(), [](const RankedRow* a, const RankedRow* b) {
    return a->question() != b->question() ? a->question() < b->question() : a->ranks_before(*b);
  });
  found.clear();
  // What is part of the program is what it was made as.
  if (trusted) {
    for (const RankedRow* row : rows) found.push_back(row->ranked);
    return true;
  }
  std::vector<std::int64_t> unsound;
  Statement whole(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE m.id = ?", kRowColumns, kRowTables));
  for (const RankedRow* row : rows) {
    whole.bind(row->id);
    if (whole.step()) {
      if (const auto row_read = sound.read_pickable(whole, unsound)) {
        found.push_back(row->ranked);
        found.back().config = canonical_text(row_read->config);
      }
    }
    whole.reset();
  }
  return unsound.empty();
}

}  // namespace

ProblemSpellings::ProblemSpellings(Connection& db)
    : by_text_(db, "SELECT id FROM problem WHERE text = ?"), others_(other_spellings(db)) {
  for (const auto& [text, ids] : others_) {
    for (const std::int64_t id : ids) texts_.emplace(id, text);
  }
}

std::string ProblemSpellings::ids_of(const std::string& text) {
  std::vector<std::int64_t> ids;
  if (const auto found = others_.find(text); found != others_.end()) ids = found->second;
  by_text_.bind(text);
  if (by_text_.step()) ids.push_back(by_text_.integer(0));
  by_text_.reset();
  return fmt::format("[{}]", fmt::join(ids, ","));
}

const std::string* ProblemSpellings::respelled(std::int64_t id) const {
  const auto found = texts_.find(id);
  return found == texts_.end() ? nullptr : &found->second;
}

const FirstRows::Rows* FirstRows::find(const Shape& shape) const {
  const auto found = by_shape_.find(shape);
  return found == by_shape_.end() ? nullptr : &found->second;
}

void FirstRows::keep(const Shape& shape, Rows rows) { by_shape_.insert_or_assign(shape, std::move(rows)); }

RowRanking::Queries::Queries(Connection& db) : spellings(db), ranking(db, ranking_query()) {}

RowRanking::RowRanking(Connection& db, SoundRows& sound, FirstRows* known) : db_(db), sound_(sound), known_(known) {}

std::optional<Measurement> RowRanking::first(const std::string& problem, const std::string& device, int sm_count,
                                             const Use& use) {
  const FirstRows::Shape shape(problem, device, sm_count);
  const FirstRows::Rows* const known = known_ == nullptr ? nullptr : known_->find(shape);
  bool leaves_out = false;  // then another row may stand: the query says which
  for (std::size_t i = 0; known != nullptr && i < known->rows.size() && !leaves_out; ++i) {
    const RowUse used = use(known->rows[i]);
    if (used == RowUse::take && known->rows[i].status == MeasurementStatus::ok) return known->rows[i];
    leaves_out = used == RowUse::leave_out;
  }
  if (known != nullptr && known->all && !leaves_out) return std::nullopt;

  if (!queries_) queries_.emplace(db_);
  const std::string problems = queries_->spellings.ids_of(problem);
  std::vector<std::int64_t> left_out;
  for (bool searched_for_unsound = false;;) {
    std::vector<std::int64_t> unsound;
    const std::size_t before = left_out.size();
    FirstRows::Rows read;
    auto found = first_beside(left_out, unsound, problems, device, sm_count, use, &read);
    if (unsound.empty() && left_out.size() == before) {
      if (known_ != nullptr && left_out.empty()) known_->keep(shape, std::move(read));
      return found;
    }
    // One that does not count may have stood before an older row of its config, or have kept it from standing.
    if (!unsound.empty() && !searched_for_unsound) {
      unsound = unsound_rows(problems, device, sm_count);
      searched_for_unsound = true;
    }
    left_out.insert(left_out.end(), unsound.begin(), unsound.end());
  }
}

// Without the rows of these ids, to which those are added that are met and left out.
std::optional<Measurement> RowRanking::first_beside(std::vector<std::int64_t>& left_out,
                                                    std::vector<std::int64_t>& unsound, const std::string& problems,
                                                    const std::string& device, int sm_count, const Use& use,
                                                    FirstRows::Rows* read) {
  Statement& query = queries_->ranking;
  query.bind(problems).bind(device).bind(sm_count).bind(fmt::format("[{}]", fmt::join(left_out, ",")));
  std::optional<Measurement> found;
  while (!found && !(read->all = !query.step())) {
    found = sound_.read_pickable(query, unsound);
    if (!found) continue;
    read->rows.push_back(*found);
    const RowUse used = use(*found);
    if (used == RowUse::leave_out) left_out.push_back(query.integer(kRowColumnCount + 1));
    if (used != RowUse::take || found->status != MeasurementStatus::ok) found.reset();
  }
  query.reset();
  return found;
}

std::vector<std::int64_t> RowRanking::unsound_rows(const std::string& problems, const std::string& device,
                                                   int sm_count) {
  Statement query(db_, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE p.id IN (SELECT value FROM "
                                   "json_each(?)) AND d.name = ? AND d.sm_count = ?",
                                   kRowColumns, kRowTables));
  query.bind(problems).bind(device).bind(sm_count);
  std::vector<std::int64_t> unsound;
  while (query.step()) sound_.read_pickable(query, unsound);
  return unsound;
}

// Sorting here takes a tenth of the time of a query that does it.
std::vector<Ranked> ranked_rows(Connection& db, SoundRows& sound, bool trusted,
                                const std::function<bool(const std::string&, int)>& wanted) {
  std::vector<std::int64_t> devices;
  Statement device(db, "SELECT id, name, sm_count FROM device");
  while (device.step()) {
    if (wanted(device.text(1), device.int32(2))) devices.push_back(device.integer(0));
  }
  const std::string of = fmt::format("[{}]", fmt::join(devices, ","));
  const ProblemSpellings spellings(db);
  std::vector<RankedRow> all;
  Statement query(
      db,
      "SELECT m.id, p.text, d.name, d.sm_count, m.config, m.status = 'ok', m.rigor, m.race, m.sequence, "
      "m.created_at, m.content_hash, m.place, CASE m.rigor WHEN 0 THEN m.predicted_us ELSE m.median_us END, "
      "m.source_hash, v.compiler, v.attune_version, p.id "
      "FROM measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id "
      "JOIN provenance v ON v.id = m.provenance_id "
      "WHERE m.device_id IN (SELECT value FROM json_each(?))");
  query.bind(of);
  while (query.step()) {
    RankedRow& row = all.emplace_back();
    row.id = query.integer(0);
    row.rigor = query.integer(6);
    const std::string* const respelled = spellings.respelled(query.integer(16));
    row.ranked = {respelled != nullptr ? *respelled : query.text(1),
                  query.text(2),
                  query.int32(3),
                  query.text(4),
                  row.rigor == 0,
                  query.text(13),
                  query.text(14),
                  query.text(15)};
    row.ok = query.integer(5) != 0;
    row.race = time_order(query.text(7));
    row.sequence = query.integer(8);
    row.created_at = time_order(query.text(9));
    row.hash = query.text(10);
    row.place = query.integer(11);
    row.ranking_us = query.real(12);
  }
  std::vector<Ranked> found;
  std::unordered_set<std::int64_t> passed_over;
  if (!chosen(db, sound, trusted, all, passed_over, found)) {
    // One that does not count may have kept an older row of its config from standing.
    std::vector<std::int64_t> unsound;
    Statement whole(db, fmt::format("SELECT {}, m.content_hash, m.id FROM {} WHERE d.id IN (SELECT value FROM "
                                    "json_each(?))",
                                    kRowColumns, kRowTables));
    whole.bind(of);
    while (whole.step()) sound.read_pickable(whole, unsound);
    passed_over.insert(unsound.begin(), unsound.end());
    chosen(db, sound, trusted, all, passed_over, found);
  }
  return found;
}

}  // namespace attune
