// Several system databases below the user's own: their order, their labels, and what is missing.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scoped_variable.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/machine_findings.h"
#include "tuner/database/packed_configs.h"
#include "tuner/database/system_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::measured_now;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::test_build;
using attune::testing::error_of;
using attune::testing::ScopedVariable;
namespace fs = std::filesystem;

namespace system_layers_test {
namespace {

constexpr const char* kProblem = "forward bf16 b2 hq8 sq1024 d64 causal align2";
constexpr const char* kOther = "forward bf16 b2 hq8 sq1024 d128 causal align2";
constexpr const char *kA = "sm80 q64 kv64 w4 st2", *kB = "sm80 q128 kv64 w4 st2", *kC = "sm80 q64 kv32 w4 st2";

Measurement row_of(const char* config, double us, const char* problem = kProblem) {
  return measured_now(example_measurement(problem, config, us));
}

struct Layers {
  TemporaryFolder folder;
  ScopedVariable system{"ATTUNE_SYSTEM_DATABASE"}, user{"ATTUNE_DATABASE", (folder / "none.db").string()};

  std::string add(const std::string& name, const std::vector<Measurement>& rows, const DatabaseLabel& label = {}) {
    write_system_database(folder / name, rows, {}, label);
    return (folder / name).string();
  }
  ConfigChoice pick(const std::string& value, const char* problem = kProblem) {
    system.set(value);
    TunedConfigs tuned(nullptr, open_system_databases(), test_build());
    return tuned.find(parse_problem(problem), find_device("h200")).value();
  }
  std::string picked(const std::string& value, const char* problem = kProblem) {
    return canonical_text(pick(value, problem).config);
  }
};

}  // namespace

TEST_CASE("system databases: the earlier one wins, the later ones answer for what it lacks", "[nogpu]") {
  Layers layers;
  // The slower row wins where its database is named first: whoever names it knows why.
  const std::string site = layers.add("site.db", {row_of(kA, 100)}, {"site", "2026.11"}),
                    team = layers.add("team.db", {row_of(kB, 50), row_of(kC, 70, kOther)}, {"team", ""});
  CHECK(layers.picked(site + ":" + team) == kA);
  CHECK(layers.picked(team + ":" + site) == kB);
  CHECK(layers.picked(site + ":" + team, kOther) == kC);
  CHECK(layers.pick(site + ":" + team).detail == std::string(kProblem) + ", 100.0 us, system database site 2026.11");
  CHECK_THAT(layers.pick(team + ":" + site).detail, ContainsSubstring("system database team"));
  // Empty names and repetitions say nothing.
  layers.system.set(":" + site + "::" + team + ":" + site + ":");
  CHECK(system_database_paths() == std::vector<fs::path>{site, team});
  CHECK(open_system_databases().size() == 2);
  layers.system.set(":");
  CHECK(open_system_databases().empty());
  CHECK_FALSE(presets_switched_off().empty());

  // A user's own row goes before both.
  const auto user = std::make_shared<TuningDatabase>(layers.folder / "tuning.db");
  user->append(row_of(kC, 200));
  layers.system.set(site + ":" + team);
  TunedConfigs tuned(user, open_system_databases(), test_build());
  CHECK(canonical_text(tuned.find(parse_problem(kProblem), find_device("h200"))->config) == kC);
  REQUIRE(tuned.layers().size() == 3);
  CHECK(tuned.layers()[0].title == "user database");
  CHECK(tuned.layers()[1].title == "system database site 2026.11");
  CHECK(tuned.layers()[2].title == "system database team");
}

TEST_CASE("system databases: the presets are among them where they are named", "[nogpu]") {
  Layers layers;
  const char* const shipped = "forward bf16 b4 hq16 sq4096 d128 causal";  // the presets have it
  const std::string site = layers.add("site.db", {row_of(kA, 100)});
  layers.system.set(site + ":presets");
  CHECK(system_database_paths() == std::vector<fs::path>{site});
  const DatabaseLayers both = open_system_databases();
  REQUIRE(both.size() == 2);
  CHECK(both[1]->label().name == kPresetsName);
  CHECK(both[1]->list().size() > 100);
  CHECK(layers.pick(site + ":presets").detail.ends_with("us, system database " + site));  // it has no label
  TunedConfigs tuned(nullptr, both);
  const ConfigChoice choice = tuned.find(parse_problem(shipped), find_device("h200")).value();
  CHECK(choice.origin == ConfigOrigin::exact);
  CHECK_THAT(choice.detail, ContainsSubstring(fmt::format("us, presets {}", attune_version())));
  CHECK(tuned.layers().back().title == fmt::format("presets {}", attune_version()));
  // Without the word the files stand in their place.
  layers.system.set(site);
  CHECK_FALSE(TunedConfigs::at_default_places()->find(parse_problem(shipped), find_device("h200")));
}

TEST_CASE("system databases: of a list, those that cannot be read are told of and the others are used", "[nogpu]") {
  Layers layers;
  const std::string site = layers.add("site.db", {row_of(kA, 100)}), missing = (layers.folder / "missing.db").string(),
                    damaged = (layers.folder / "damaged.db").string();
  std::ofstream(damaged) << "no database";
  layers.system.set(missing + ":" + damaged + ":" + site);
  std::vector<std::string> said;
  set_log_sink([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) said.emplace_back(message);
  });
  const auto tuned = TunedConfigs::at_default_places();
  const auto found = tuned->find(parse_problem(kProblem), find_device("h200"));
  set_log_sink(nullptr);
  REQUIRE(said.size() == 2);
  CHECK_THAT(said[0], ContainsSubstring(missing) && ContainsSubstring("attune db ship") &&
                          ContainsSubstring("ATTUNE_SYSTEM_DATABASE"));
  CHECK_THAT(said[1], ContainsSubstring(damaged));
  REQUIRE(found);
  CHECK(canonical_text(found->config) == kA);
  CHECK_FALSE(fs::exists(missing));
  for (const Finding& finding : find_on_this_machine()) {
    if (finding.name == "presets")
      CHECK_THAT(finding.value, ContainsSubstring("1 result on 1 model of GPU, of " + site) &&
                                    ContainsSubstring(missing + " cannot be read"));
  }
}

TEST_CASE("system databases: a digest tells their names, versions and order", "[nogpu]") {
  Layers layers;
  const auto digest = [&](const std::string& value, const char* target = "h200") {
    layers.system.set(value);
    const PackedConfigs configs(
        std::make_shared<LoadedPacks>(),
        [] { return std::make_shared<TunedConfigs>(nullptr, open_system_databases(), test_build()); }, false);
    return configs.digest(find_device(target), TemplateSet::embedded());
  };
  const std::vector<Measurement> one = {row_of(kA, 100)}, two = {row_of(kB, 50)};
  const std::string site = layers.add("site.db", one, {"site", "1"}),
                    again = layers.add("again.db", one, {"site", "1"}),
                    newer = layers.add("newer.db", one, {"site", "2"}),
                    team = layers.add("team.db", two, {"team", "1"}),
                    empty = layers.add("empty.db", {}, {"empty", "1"});
  const std::string first = digest(site + ":" + team);
  CHECK(digest(again + ":" + team) == first);  // another path
  CHECK(digest(newer + ":" + team) != first);
  CHECK(digest(team + ":" + site) != first);
  CHECK(digest(site) != first);
  // What has no row for the GPU decides nothing there.
  CHECK(digest(site + ":" + empty + ":" + team) == first);
  CHECK(digest(site, "a100") == digest(newer, "a100"));
}

TEST_CASE("a system database's label is stored, is no damage, and is plain", "[nogpu]") {
  Layers layers;
  const fs::path file = layers.add("site.db", {row_of(kA, 100)}, {"site-h200", "2026.11+b1"});
  CHECK(TuningDatabase::open_shipped(file)->label() == DatabaseLabel{"site-h200", "2026.11+b1"});
  CHECK(TuningDatabase::open_for_reading(file)->list().size() == 1);
  CHECK(examine_database(file).findings.empty());
  layers.add("site.db", {row_of(kA, 100)});  // it replaces its own
  CHECK(TuningDatabase::open_shipped(file)->label().empty());

  for (const std::string& bad :
       {std::string("two words"), std::string("a:b"), std::string(65, 'x'), std::string("\x1b[1m")}) {
    for (const DatabaseLabel& label : {DatabaseLabel{bad, ""}, DatabaseLabel{"", bad}})
      CHECK_THAT(error_of(ErrorCode::invalid_argument, [&] { layers.add("bad.db", {}, label); }),
                 ContainsSubstring("bad.db") && ContainsSubstring("letters, digits"));
  }
  CHECK_FALSE(fs::exists(layers.folder / "bad.db"));

  // Whoever made the file, what it says of itself stands in sentences.
  layers.add("site.db", {row_of(kA, 100)}, {"site", "1"});
  run_sql(file, "UPDATE label SET name = 'x' || char(27) || '[31m'");
  const auto hostile = TuningDatabase::open_shipped(file);
  CHECK(hostile->notes().empty());
  CHECK(hostile->label().empty());
  CHECK(hostile->list().size() == 1);
  run_sql(file, "DELETE FROM label");
  CHECK(TuningDatabase::open_shipped(file)->label().empty());
  // Another table of the name is not Attune's.
  run_sql(file, "DROP TABLE label; CREATE TABLE label (name TEXT)");
  CHECK_FALSE(examine_database(file).findings.empty());
}

TEST_CASE("databases are joined: each row once, with the best of all", "[nogpu]") {
  Layers layers;
  const auto user = std::make_shared<TuningDatabase>(layers.folder / "tuning.db");
  user->append_all({row_of(kA, 100), row_of(kC, 80)});
  const auto shipped =
      TuningDatabase::open_shipped(layers.add("site.db", {row_of(kA, 100), row_of(kB, 50), row_of(kC, 70, kOther)}));
  const auto joined = join_databases({user, shipped}, "both");
  CHECK(joined->notes().empty());
  CHECK(joined->path() == "both");
  REQUIRE(joined->list().size() == 2);
  CHECK(joined->find_all(parse_problem(kProblem), "NVIDIA H200", 132).size() == 3);
  CHECK(canonical_text(joined->best(parse_problem(kProblem), "NVIDIA H200", 132)->config) == kB);
  CHECK(join_databases({}, "none")->list().empty());
}

}  // namespace system_layers_test
