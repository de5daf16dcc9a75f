#include "tuner/database/database_pruning.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "generator/error.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/sound_rows.h"
#include "tuner/database/sqlite.h"
#include "tuner/database/writable_database.h"

namespace attune {
namespace {

using sqlite::Connection;
using sqlite::Statement;
using sqlite::Transaction;

// Rows that a rule names and that do not stand for their config, as a table `doomed` of their ids.
std::string doomed_rows() {
  return fmt::format(R"sql(
CREATE TEMP TABLE doomed AS
WITH placed AS (
  SELECT m.id, m.status, m.created_at,
    row_number() OVER (PARTITION BY m.problem_id, m.device_id, m.config ORDER BY {0}) AS age,
    row_number() OVER (PARTITION BY m.problem_id, m.device_id, m.config ORDER BY m.rigor DESC, {0}) AS standing,
    count(*) FILTER (WHERE m.status = 'ok') OVER (PARTITION BY m.problem_id, m.device_id, m.config) AS ok
  FROM main.measurement m
)
SELECT id FROM placed
WHERE (age > ?1 AND standing > 1)
   OR (status <> 'ok' AND julianday(created_at) < julianday('now') - ?2 AND (standing > 1 OR ok = 0))
)sql",
                     kNewestFirst);
}

// The rows of configs that lose one and keep another outcome, as they stand.
std::string standing_rows() {
  return fmt::format(R"sql(
SELECT {}, m.content_hash, m.id, m.problem_id, m.device_id FROM {}
WHERE (m.problem_id, m.device_id, m.config) IN
  (SELECT problem_id, device_id, config FROM main.measurement GROUP BY problem_id, device_id, config
   HAVING count(*) FILTER (WHERE id IN (SELECT id FROM temp.doomed)) > 0 AND count(*) FILTER (WHERE status = 'ok') > 0)
ORDER BY m.problem_id, m.device_id, m.config, m.rigor DESC, {}
)sql",
                     kRowColumns, kRowTables, kNewestFirst);
}

constexpr const char* kRemoveDoomed = R"sql(
DELETE FROM measurement WHERE id IN (SELECT id FROM temp.doomed);
DELETE FROM problem    WHERE id NOT IN (SELECT problem_id    FROM measurement);
DELETE FROM device     WHERE id NOT IN (SELECT device_id     FROM measurement);
DELETE FROM provenance WHERE id NOT IN (SELECT provenance_id FROM measurement);
)sql";

// The rows of one config on one device, in the order in which they stand: those that do, some among the less stale.
class StandingRows {
 public:
  explicit StandingRows(const CurrentBuild& build) : build_(build) {}

  bool stands(const Measurement& row) {
    if (least_ == Staleness::current) return false;
    // Rows of one build are equally stale.
    if (!seen_.insert({row.source_hash, row.compiler, row.attune_version, row.rigor == Rigor::estimate}).second)
      return false;
    const std::optional<DeviceSpec> device = find_device_by_name(row.device);
    const Staleness stale = build_.staleness(row, device ? *device : DeviceSpec{});
    if (least_ && stale >= *least_) return false;
    least_ = stale;
    return true;
  }

 private:
  const CurrentBuild& build_;
  std::optional<Staleness> least_;
  std::set<std::tuple<std::string, std::string, std::string, bool>> seen_;
};

// Spares the rows that picks rest on where the one that stands is stale, or is never picked.
void spare_picked_rows(Connection& db, const std::filesystem::path& path, const CurrentBuild& build) {
  std::vector<std::int64_t> spared;
  {
    SoundRows sound(path);
    Statement query(db, standing_rows());
    std::tuple<std::int64_t, std::int64_t, std::string> config_before;
    std::optional<StandingRows> standing;
    while (query.step()) {
      std::tuple config{query.integer(kRowColumnCount + 2), query.integer(kRowColumnCount + 3), query.text(3)};
      if (!standing || config != config_before) standing.emplace(build);
      config_before = std::move(config);
      std::vector<std::int64_t> passed_over;
      const auto row = sound.read_pickable(query, passed_over);
      if (row && standing->stands(*row)) spared.push_back(query.integer(kRowColumnCount + 1));
    }
  }
  Statement spare(db, "DELETE FROM temp.doomed WHERE id = ?");
  for (const std::int64_t id : spared) {
    spare.bind(id).step();
    spare.reset();
  }
}

}  // namespace

PruneResult prune_database(const std::filesystem::path& path, const PruneRules& rules, bool dry_run,
                           const CurrentBuild& build) {
  if (!rules.keep_latest && !rules.failed_older_than)
    throw Error(ErrorCode::invalid_argument,
                "nothing says what to remove: give --keep-latest N or --failed-older-than DAYS");
  if (rules.keep_latest && *rules.keep_latest < 1)
    throw Error(ErrorCode::invalid_argument, "--keep-latest must be at least 1");
  if (rules.failed_older_than && *rules.failed_older_than < 0)
    throw Error(ErrorCode::invalid_argument, "--failed-older-than must be at least 0 days");
  return WritableDatabase(path).change([&](Connection& db) {
    Transaction transaction(db);
    // A rule that is not given is NULL, and a comparison with NULL holds for no row.
    Statement doomed(db, doomed_rows());
    rules.keep_latest ? doomed.bind(*rules.keep_latest) : doomed.bind(std::nan(""));
    rules.failed_older_than ? doomed.bind(*rules.failed_older_than) : doomed.bind(std::nan(""));
    doomed.step();
    spare_picked_rows(db, path, build);
    PruneResult result;
    {
      Statement query(db, fmt::format("SELECT p.text, d.name, m.config, m.status, m.created_at, d.sm_count FROM {} "
                                      "WHERE m.id IN (SELECT id FROM temp.doomed) {}",
                                      kRowTables, kRowOrder));
      while (query.step()) {
        result.removed.push_back(
            {query.text(0), query.text(1), query.text(2), query.text(3), query.text(4), query.int32(5)});
      }
    }
    if (!dry_run) db.execute(kRemoveDoomed);
    result.kept = db.integer("SELECT count(*) FROM measurement") -
                  (dry_run ? static_cast<std::int64_t>(result.removed.size()) : 0);
    if (!dry_run) transaction.commit();
    return result;
  });
}

}  // namespace attune
