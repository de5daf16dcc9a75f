// Two databases that were filled apart say the same after they were merged, whichever was merged into which, as files
// and as JSON.
#include <fmt/format.h>

#include <random>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_json.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_pruning.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql_text;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr const char* kProblems[] = {"forward bf16 b2 hq8 sq1024 d64 causal", "forward fp16 b1 hq4 sq512 d128"};
constexpr const char* kConfigs[] = {"sm80 q64 kv64 w4 st2", "sm80 q128 kv64 w4 st2", "sm80 q64 kv32 w4 st2"};

// Few values of everything, so that rows often tie: dates of clocks that are wrong, races, failures, rows of versions
// that numbered nothing.
void fill(const fs::path& file, std::mt19937& random) {
  const auto below = [&](int count) { return std::uniform_int_distribution<int>(0, count - 1)(random); };
  TuningDatabase database(file);
  std::vector<Measurement> unnumbered;
  for (int i = 0; i < 14; ++i) {
    Measurement row = example_measurement(kProblems[below(2)], kConfigs[below(3)], 90 + below(3));
    row.created_at = fmt::format("20{}-01-01T00:00:0{}Z", below(4) == 0 ? 46 : 25, below(3));
    row.rigor = below(3) == 0 ? Rigor::patient : Rigor::measure;
    if (below(6) == 0) row.status = MeasurementStatus::crashed;
    if (below(3) == 0) {
      row.race = fmt::format("2025-01-0{}T00:00:00Z", 1 + below(3));
      row.place = 1 + below(2);
    }
    if (below(3) == 0) {
      unnumbered.push_back(row);
    } else {
      database.append(row);
    }
  }
  database.append_all(unnumbered);
}

// All that the database answers, with its order.
std::string answers(const fs::path& file) {
  const TuningDatabase database(file);
  std::string text;
  const auto add = [&](const char* what, const std::vector<Measurement>& rows) {
    text += fmt::format("{}\n{}", what, export_measurements(rows));
  };
  for (const char* problem_text : kProblems) {
    const AttentionProblem problem = parse_problem(problem_text);
    const auto best = database.best(problem, "NVIDIA H200", 132);
    add("best", best ? std::vector{*best} : std::vector<Measurement>{});
    add("latest", database.latest(problem, "NVIDIA H200", 132));
    add("all", database.find_all(problem, "NVIDIA H200", 132));
  }
  add("ship", rows_to_ship(read_database(file).rows));
  return text;
}

void merge_into(const fs::path& target, const fs::path& from) {
  TuningDatabase(target).append_all(read_database(from).rows);
}

void import_into(const fs::path& target, const fs::path& from) {
  const std::string text = export_measurements(read_database(from).rows);
  TuningDatabase(target).append_all(import_measurements(text, "export.json"));
}

}  // namespace

TEST_CASE("A merged into B and B into A pick the same, as files and as JSON", "[nogpu]") {
  std::mt19937 random(20261122);
  for (int round = 0; round < 12; ++round) {
    INFO("round " << round);
    const TemporaryFolder folder;
    const fs::path a = folder / "a.db", b = folder / "b.db", ab = folder / "ab.db", ba = folder / "ba.db",
                   json = folder / "json.db";
    fill(a, random);
    fill(b, random);
    for (const auto& [target, first, second] : {std::tuple(ab, a, b), std::tuple(ba, b, a)}) {
      merge_into(target, first);
      merge_into(target, second);
    }
    import_into(json, b);
    import_into(json, a);
    merge_into(a, b);
    const std::string expected = answers(ab);
    REQUIRE_THAT(expected, ContainsSubstring("sequence"));
    CHECK(answers(ba) == expected);
    CHECK(answers(json) == expected);
    CHECK(answers(a) == expected);
    // What is pruned changes none of it but the rows.
    const auto best = [&](const fs::path& file) {
      std::string text;
      for (const char* problem : kProblems) {
        const auto row = TuningDatabase(file).best(parse_problem(problem), "NVIDIA H200", 132);
        text += row ? canonical_text(row->config) + row->created_at : "nothing";
      }
      return text;
    };
    const std::string before = best(ab);
    prune_database(ab, {1, std::nullopt}, false);
    prune_database(ba, {1, std::nullopt}, false);
    CHECK(best(ab) == before);
    CHECK(answers(ab) == answers(ba));
  }
}

TEST_CASE("a row dated 2046 wins until the next is stored, merged or not", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path mine = folder / "mine.db", other = folder / "other.db";
  Measurement row = example_measurement(kProblems[0], kConfigs[0], 90);
  row.created_at = "2046-01-01T00:00:00Z";
  TuningDatabase(other).append(row);
  merge_into(mine, other);
  TuningDatabase database(mine);
  Measurement now = example_measurement(kProblems[0], kConfigs[0], 100);
  now.created_at.clear();
  database.append(now);
  REQUIRE(database.best(row.problem, "NVIDIA H200", 132)->median_us == 100);
  merge_into(other, mine);
  REQUIRE(TuningDatabase(other).best(row.problem, "NVIDIA H200", 132)->median_us == 100);
}
