#include "tuner/database/system_database.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/scoped_variable.h"
#include "tests/source_folder.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_json.h"
#include "tuner/database/tuned_configs.h"

using namespace attune;
using attune::test::ask_sql_text;
using attune::test::example_measurement;
using attune::test::require_equal;
using attune::test::TemporaryFolder;
using attune::testing::ScopedVariable;
namespace fs = std::filesystem;

namespace system_database_test {
namespace {

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr const char* kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";

}  // namespace

TEST_CASE("every program has the shipped presets in it, and picks from them", "[nogpu]") {
  const TemporaryFolder folder;
  ScopedVariable system("ATTUNE_SYSTEM_DATABASE"), user("ATTUNE_DATABASE");
  system.unset();
  user.set((folder / "none.db").string());
  REQUIRE(system_database_paths().empty());
  const DatabaseLayers layers = open_system_databases();
  REQUIRE(layers.size() == 1);
  const auto presets = layers[0];
  REQUIRE(presets->label() == DatabaseLabel{"presets", std::string(attune_version())});
  REQUIRE(presets->notes().empty());
  REQUIRE(presets->read_only());
  REQUIRE_THROWS_AS(presets->append(example_measurement()), Error);

  std::size_t shipped = 0;
  for (const auto& entry : fs::directory_iterator(attune::testing::source_folder() / "tuner/presets")) {
    if (entry.path().extension() == ".json")
      shipped += import_measurements(bytes_of(entry.path()), entry.path().string()).size();
  }
  std::size_t embedded = 0;
  for (const TuningDatabase::Entry& entry : presets->list()) embedded += static_cast<std::size_t>(entry.rows);
  REQUIRE(shipped > 100);
  REQUIRE(embedded == shipped);

  const auto choice = TunedConfigs::at_default_places()->find(parse_problem("forward bf16 b4 hq16 sq4096 d128 causal"),
                                                              find_device("h200"));
  REQUIRE(choice);
  REQUIRE(choice->origin == ConfigOrigin::exact);
}

TEST_CASE("what was asked of the presets before changes no pick", "[nogpu]") {
  ScopedVariable system("ATTUNE_SYSTEM_DATABASE");
  system.unset();
  const auto picks_of = [] { return TunedConfigs(nullptr, open_system_databases(), nullptr); };
  TunedConfigs asked_all = picks_of();
  const DeviceSpec& device = find_device("h200");
  for (const char* text : {"forward bf16 b4 hq16 sq4000 d128 causal", "forward bf16 b4 hq16 sq4096 d128 causal",
                           "forward fp16 b2 hq12 sq1500 d96", "backward bf16 b4 hq16 sq5000 d128 causal",
                           "backward bf16 b4 hq16 sq4000 d128 causal", "forward bf16 b8 hq16 sq4500 d128 causal"}) {
    INFO(text);
    const AttentionProblem problem = parse_problem(text);
    TunedConfigs fresh = picks_of();
    std::vector<KernelConfig> passed_over;
    // Those that come after the first are rows, too, that were read or not.
    for (int i = 0; i < 3; ++i) {
      const auto of_fresh = fresh.find(problem, device, passed_over),
                 pick = asked_all.find(problem, device, passed_over);
      REQUIRE(of_fresh.has_value());
      REQUIRE(pick.has_value());
      CHECK(pick->config == of_fresh->config);
      CHECK(pick->detail == of_fresh->detail);
      passed_over.push_back(pick->config);
    }
  }
}

TEST_CASE("a system database that the environment names stands for the presets", "[nogpu]") {
  const TemporaryFolder folder;
  ScopedVariable system("ATTUNE_SYSTEM_DATABASE");
  system.set("");
  REQUIRE(system_database_paths().empty());
  REQUIRE(open_system_databases().empty());

  const fs::path named = folder / "system.db";
  system.set(named.string());
  REQUIRE(system_database_paths() == std::vector{named});
  const DatabaseLayers layers = open_system_databases();
  REQUIRE(layers.size() == 1);
  const auto missing = layers[0];
  REQUIRE(missing->notes().size() == 1);
  REQUIRE_THAT(missing->notes()[0], ContainsSubstring(named.string()) && ContainsSubstring("attune db ship") &&
                                        ContainsSubstring("ATTUNE_SYSTEM_DATABASE"));
  REQUIRE(missing->list().empty());
  REQUIRE_FALSE(fs::exists(named));

  write_system_database(named, {example_measurement()});
  const auto opened = open_system_databases().at(0);
  REQUIRE(opened->notes().empty());
  REQUIRE(opened->list().size() == 1);
  ScopedVariable user("ATTUNE_DATABASE");
  user.set((folder / "none.db").string());
  const auto tuned = TunedConfigs::at_default_places();
  REQUIRE(tuned->user() == nullptr);
  REQUIRE_FALSE(fs::exists(folder / "none.db"));
  REQUIRE(tuned->find(parse_problem(kProblem), find_device("h200"))->origin == ConfigOrigin::exact);
}

TEST_CASE("a system database is one whole file, the same for the same rows", "[nogpu]") {
  const TemporaryFolder folder;
  Measurement raced = example_measurement(kProblem, "sm80 q64 kv64 w4 st2", 90);
  raced.race = "2025-01-31T11:00:00.000000Z";
  raced.place = 1;
  const std::vector<Measurement> rows = {example_measurement(), raced};
  const fs::path file = folder / "share/attune/system.db";
  write_system_database(file, rows);
  write_system_database(folder / "again.db", rows);
  REQUIRE(bytes_of(file) == bytes_of(folder / "again.db"));
  REQUIRE(std::distance(fs::directory_iterator(file.parent_path()), {}) == 1);
  REQUIRE(examine_database(file).findings.empty());
  const auto opened = TuningDatabase::open_shipped(file);
  const auto found = opened->find_all(parse_problem(kProblem), "NVIDIA H200", 132);
  REQUIRE(found.size() == 2);
  require_equal(found[0], rows[0]);
  require_equal(found[1], raced);

  // It replaces an older one, and leaves that one where it cannot.
  write_system_database(file, {raced});
  REQUIRE(TuningDatabase::open_shipped(file)->list().at(0).rows == 1);
  REQUIRE(opened->list().at(0).rows == 2);  // what was open stays
  std::ofstream(folder / "in the way") << "x";
  REQUIRE_THROWS_WITH(write_system_database(folder / "in the way/system.db", rows),
                      ContainsSubstring("in the way/system.db"));
  fs::create_directory(folder / "folder.db");
  std::ofstream(folder / "folder.db/file") << "x";
  REQUIRE_THROWS_AS(write_system_database(folder / "folder.db", rows), Error);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    REQUIRE_THAT(entry.path().filename().string(), !ContainsSubstring("partial"));
}

TEST_CASE("what is shipped of many rows: the best and the default of each problem and device", "[nogpu]") {
  const DeviceSpec& h200 = find_device("h200");
  const AttentionProblem problem = parse_problem(kProblem);
  const std::string standard = canonical_text(default_config(problem, h200));
  const std::string a = standard == "sm80 q64 kv64 w4 st2" ? "sm80 q64 kv32 w4 st2" : "sm80 q64 kv64 w4 st2";
  const std::string b = "sm80 q64 kv128 w4 st2";
  int second = 0;
  const auto row = [&](const std::string& config, double us, int place = 0) {
    Measurement m = example_measurement(kProblem, config, us);
    m.created_at = "2025-01-31T12:00:" + std::to_string(10 + second++) + ".000000Z";
    if (place > 0) {
      m.race = "2025-01-31T11:00:00.000000Z";
      m.wide_samples_us = {us, 1.1 * us, 1.2 * us};
      m.wide_median_us = 1.1 * us;
    }
    m.place = place;
    m.node.host = "of-no-concern";
    return m;
  };
  Measurement estimate = row(a, 1), failed = row(b, 1);
  estimate.rigor = Rigor::estimate;
  failed.status = MeasurementStatus::wrong_result;
  const Measurement probe = row(standard, 100), lucky = row(a, 5), second_place = row(standard, 99, 2),
                    winner = row(a, 99.5, 1);
  Measurement unknown = row(a, 50);
  unknown.device = "NVIDIA of tomorrow";

  const auto shipped = rows_to_ship({estimate, failed, probe, lucky, second_place, winner, unknown});
  REQUIRE(shipped.size() == 3);
  const auto without_samples = [](Measurement m) {
    m.samples_us.clear();
    m.wide_samples_us.clear();
    m.clocks_mhz.clear();
    m.node = {};
    return m;
  };
  require_equal(shipped[0], without_samples(second_place));
  require_equal(shipped[1], without_samples(winner));
  require_equal(shipped[2], without_samples(unknown));
  REQUIRE(shipped[1].median_us > 0);
  REQUIRE(shipped[1].wide_median_us > 0);
  // It can be written, read and shipped again.
  const auto back = import_measurements(export_measurements(shipped), "preset.json");
  REQUIRE(rows_to_ship(back).size() == 3);
  REQUIRE(rows_to_ship({failed, estimate}).empty());
  REQUIRE(rows_to_ship({winner, row(a, 80)}).size() == 1);  // the newest row stands for its config
  Measurement crashed = row(standard, 0);
  crashed.status = MeasurementStatus::crashed;
  REQUIRE(rows_to_ship({second_place, winner, crashed}).size() == 1);
}

TEST_CASE("what cannot have been measured is not shipped", "[nogpu]") {
  const Measurement honest = example_measurement(kProblem, "sm80 q64 kv64 w4 st2", 100);
  Measurement forged = example_measurement(kProblem, "sm80 q64 kv128 w4 st2", 0.2);
  std::string said;
  set_log_sink([&](LogLevel, std::string_view message) { said = message; });
  const auto shipped = rows_to_ship({honest, forged});
  set_log_sink(nullptr);
  REQUIRE(shipped.size() == 1);
  REQUIRE(shipped[0].config == honest.config);
  REQUIRE_THAT(said, ContainsSubstring("is not shipped"));
}

TEST_CASE("no time is too short where tensors say which pairs there are", "[nogpu]") {
  const std::string config = "sm80 q64 kv64 w4 st2";
  for (const char* words : {" attention-mask=b11k", " attention-mask=1hqk", " used"}) {
    const Measurement row = example_measurement(std::string(kProblem) + words, config, 0.2);
    CHECK(impossibility(row).empty());
  }
  CHECK_FALSE(impossibility(example_measurement(std::string(kProblem) + " bias=b11k", config, 0.2)).empty());
}

TEST_CASE("every preset can be read, is as exact as its dtype wants, and says where it comes from", "[nogpu]") {
  for (const auto& entry : fs::directory_iterator(attune::testing::source_folder() / "tuner/presets")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    const auto rows = import_measurements(bytes_of(entry.path()), entry.path().string());
    REQUIRE_FALSE(rows.empty());
    for (const Measurement& row : rows) {
      REQUIRE(row.status == MeasurementStatus::ok);
      REQUIRE(row.rigor >= Rigor::measure);
      REQUIRE(row.median_us > 0);
      REQUIRE(impossibility(row).empty());  // or it would be passed over
      REQUIRE(error_beyond_bounds(row).empty());
      const auto device = find_device_by_name(row.device);
      REQUIRE(device);  // else the rows serve no other GPU of its family
      REQUIRE(infeasibility(row.problem, row.config, *device).empty());
      REQUIRE(row.config.rescale_threshold <= rescale_threshold_for(row.problem.dtype));
      REQUIRE_FALSE(row.source_hash.empty());
      REQUIRE_FALSE(row.compiler.empty());
      REQUIRE_FALSE(row.driver.empty());
      REQUIRE_FALSE(row.protocol.empty());
    }
  }
}

}  // namespace system_database_test
