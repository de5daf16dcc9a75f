// Several system databases, and the verbs that show what is shipped.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/cli/explained_rows.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_json.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;

namespace layers_test {
namespace {

constexpr const char *kA = "sm80 q64 kv64 w4 st2", *kB = "sm80 q128 kv64 w4 st2", *kC = "sm80 q64 kv32 w4 st2";
constexpr const char* kElsewhere = "forward bf16 b2 hq8 sq2048 d64 causal align2";

/// With as many samples as it has clocks, so that it can be exported and imported.
Measurement row(const char* config, double median_us) { return row_of(config, median_us, 3); }

struct Layers {
  attune::test::TemporaryFolder folder;
  std::string user = (folder / "tuning.db").string(), site = (folder / "site.db").string(),
              team = (folder / "team.db").string();
  std::map<std::string, std::string> environment = kNoGpu;

  Layers() {
    Measurement elsewhere = row(kC, 70);
    elsewhere.problem = attune::parse_problem(kElsewhere);
    attune::write_system_database(site, {row(kA, 100)}, {}, {"site", "2026.11"});
    attune::write_system_database(team, {row(kA, 120), row(kB, 50), elsewhere});
    environment["ATTUNE_DATABASE"] = user;
    environment["ATTUNE_SYSTEM_DATABASE"] = site + ":" + team;
  }
  CommandResult run(const std::vector<std::string>& arguments) const { return run_attune(arguments, environment); }
};

}  // namespace

TEST_CASE("layers: explain tells each database with its name, version and rows", "[nogpu]") {
  Layers layers;
  const std::vector<std::string> asked = {"explain", "--problem", kProblem, "--target", "h200"};
  std::vector<std::string> as_json = asked;
  as_json.push_back("--json");
  attune::TuningDatabase(layers.user).append(row(kC, 130));
  nlohmann::json document = layers.run(as_json).json();
  const nlohmann::json& found = document.at("layers");
  REQUIRE(found.size() == 3);
  CHECK(found[0] == nlohmann::json{{"database", "user"}, {"path", layers.user}, {"rows", 1}});
  CHECK(found[1] ==
        nlohmann::json{
            {"database", "system"}, {"path", layers.site}, {"rows", 1}, {"name", "site"}, {"version", "2026.11"}});
  CHECK(found[2] == nlohmann::json{{"database", "system"}, {"path", layers.team}, {"rows", 3}});
  CHECK(document.at("config") == kC);
  CHECK(document.at("candidates")[0].at("layer") == 0);
  const auto candidate = [&](const char* config) {
    for (const nlohmann::json& each : document.at("candidates"))
      if (each.at("config") == config) return each;
    return nlohmann::json();
  };
  CHECK(candidate(kA).at("layer") == 1);  // its row in the earlier database stands for it
  CHECK(candidate(kA).at("median_us").get<double>() == Approx(100).epsilon(0.001));
  CHECK(candidate(kA).at("why_not") == "of the system database site 2026.11, over which a user's own rows win");
  CHECK(candidate(kB).at("why_not") == "of the system database " + layers.team + ", over which a user's own rows win");
  const std::string text = layers.run(asked).out;
  CHECK_THAT(text, ContainsSubstring("1. user database: " + layers.user + ", 1 row\n") &&
                       ContainsSubstring("2. system database site 2026.11: " + layers.site + ", 1 row\n") &&
                       ContainsSubstring("3. system database " + layers.team + ", 3 rows\n"));

  // Without a user's own rows: the first system database over the second.
  std::filesystem::remove(layers.user);
  document = layers.run(as_json).json();
  CHECK(document.at("config") == kA);
  CHECK_THAT(document.at("origin_detail").get<std::string>(), ContainsSubstring("us, system database site 2026.11"));
  CHECK(candidate(kB).at("why_not") ==
        "of the system database " + layers.team + ", over which rows of the system database site 2026.11 win");

  // One that is missing is told of once; the next one answers.
  std::filesystem::remove(layers.site);
  const CommandResult missing = layers.run(as_json);
  CHECK(missing.status == 0);
  CHECK_THAT(missing.err, ContainsSubstring(layers.site) && ContainsSubstring("ATTUNE_SYSTEM_DATABASE"));
  CHECK(missing.err.find(layers.site) == missing.err.rfind(layers.site));
  document = missing.json();
  CHECK(document.at("config") == kB);
  CHECK_THAT(document.at("layers")[0].at("unreadable").get<std::string>(), ContainsSubstring(layers.site));
  CHECK_THAT(layers.run(asked).out, ContainsSubstring("1. system database " + layers.site + ", cannot be read"));
  layers.environment["ATTUNE_SYSTEM_DATABASE"] = "presets";
  CHECK_THAT(layers.run(asked).out, ContainsSubstring("1. presets ") && !ContainsSubstring("shipped presets"));
}

TEST_CASE("layers: ship gives a name and a version", "[nogpu]") {
  Layers layers;
  const std::string exported = (layers.folder / "rows.json").string(), made = (layers.folder / "made.db").string();
  std::ofstream(exported) << attune::export_measurements({row(kA, 100)});
  const CommandResult shipped =
      layers.run({"db", "ship", exported, "--name", "lab", "--version", "7", "--output", made, "--json"});
  INFO(shipped.err);
  CHECK(shipped.status == 0);
  CHECK(shipped.json().at("name") == "lab");
  CHECK(shipped.json().at("version") == "7");
  CHECK(attune::TuningDatabase::open_shipped(made)->label() == attune::DatabaseLabel{"lab", "7"});
  CHECK_THAT(layers.run({"db", "ship", exported, "--name", "lab", "--output", made}).out,
             ContainsSubstring("(lab, 1 rows)"));
  CHECK(layers.run({"db", "ship", exported, "--name", "two words", "--output", made}).status == 2);
  CHECK(layers.run({"db", "ship", exported, "--name", "presets", "--output", made}).status == 2);
  CHECK(attune::TuningDatabase::open_shipped(made)->label() == attune::DatabaseLabel{"lab", ""});
  CHECK(layers.run({"--version"}).status == 0);
}

TEST_CASE("layers: --presets shows what is shipped, and who finds nothing is told of it", "[nogpu]") {
  Layers layers;
  const std::vector<std::string> best = {"db", "best", "--problem", kProblem, "--target", "h200"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const std::string page = (layers.folder / "page.html").string(), exported = (layers.folder / "rows.json").string();

  // Nothing of one's own.
  CommandResult none = layers.run(best);
  CHECK(none.status == 1);
  CHECK_THAT(none.out,
             ContainsSubstring("nothing found") && ContainsSubstring("--presets shows what is shipped (2 problems)"));
  CHECK_THAT(layers.run({"db", "list"}).out, ContainsSubstring("--presets shows what is shipped (3 problems)"));
  const CommandResult no_page = layers.run({"report", "--output", page});
  CHECK(no_page.status == 1);
  CHECK_THAT(no_page.out, ContainsSubstring("--presets shows what is shipped (3 problems)"));
  CHECK_THAT(layers.run({"db", "export"}).err, ContainsSubstring("--presets shows what is shipped"));
  // No hint where nothing is shipped of it.
  CHECK_THAT(layers.run({"db", "best", "--problem", kProblem, "--target", "a100"}).out,
             !ContainsSubstring("--presets"));

  const nlohmann::json found = layers.run(with(best, {"--presets", "--json"})).json();
  REQUIRE(found.at("best").size() == 1);
  CHECK(found.at("best")[0].at("config") == kB);
  CHECK(found.at("best")[0].at("database") == layers.team);
  CHECK(found.at("databases") == std::vector<std::string>{layers.site, layers.team});
  CHECK_THAT(layers.run(with(best, {"--presets"})).out, ContainsSubstring(layers.team));

  std::map<std::string, std::string> switched_off = layers.environment;
  switched_off["ATTUNE_SYSTEM_DATABASE"] = "";
  CHECK_THAT(run_attune(with(best, {"--presets"}), switched_off).err,
             ContainsSubstring("--presets shows nothing: ATTUNE_SYSTEM_DATABASE is set and empty"));

  // Beside one's own.
  attune::TuningDatabase(layers.user).append(row(kC, 20));
  CHECK(layers.run(with(best, {"--presets", "--json"})).json().at("best")[0].at("config") == kC);
  CHECK(layers.run({"db", "best", "--presets", "--json"}).json().at("best").size() == 2);
  const nlohmann::json listed = layers.run({"db", "list", "--presets", "--json"}).json();
  REQUIRE(listed.at("entries").size() == 2);
  CHECK(listed.at("entries")[0].at("rows") == 4);  // one, one and two
  CHECK(listed.at("databases").size() == 3);
  CHECK(layers.run({"db", "list", "--json"}).json().at("entries").size() == 1);
  CHECK_THAT(layers.run({"report", "--output", page, "--problem", kElsewhere}).out,
             ContainsSubstring("--presets shows what is shipped (1 problem)"));
  const CommandResult reported = layers.run({"report", "--output", page, "--presets", "--json"});
  INFO(reported.err);
  CHECK(reported.status == 0);
  CHECK(reported.json().at("problems") == 2);
  CHECK(reported.json().at("rows") == 5);
  CHECK(layers.run({"report", "--output", layers.team, "--presets"}).status == 2);  // what is read is not written
  const CommandResult rows = layers.run({"db", "export", "--presets", "--output", exported, "--json"});
  CHECK(rows.json().at("rows") == 5);
  const CommandResult imported = layers.run({"db", "import", exported});
  INFO(imported.err);
  CHECK(imported.status == 0);
  CHECK(layers.run({"db", "export", "--presets", "--output", exported, "--json"}).json().at("rows") == 5);  // each once
  CHECK(attune::TuningDatabase::open_shipped(layers.team)->list().size() == 2);
}

}  // namespace layers_test
