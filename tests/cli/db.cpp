#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using namespace attune::testing;

namespace {

Measurement row(const std::string& config, int day, MeasurementStatus status = MeasurementStatus::ok) {
  Measurement m;
  m.problem = parse_problem("forward bf16 b2 hq8 sq1024 d64 causal");
  m.config = parse_config(config);
  m.device = "NVIDIA H200";
  m.sm_count = 132;
  m.status = status;
  m.samples_us = {90.5, 91.25, 92};
  m.summarize();
  m.protocol = "by hand";
  m.created_at = "2025-03-0" + std::to_string(day) + "T00:00:00.000000Z";
  return m;
}

void tamper(const std::string& path) {
  sqlite3* connection = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &connection) == SQLITE_OK);
  REQUIRE(sqlite3_exec(connection, "UPDATE measurement SET median_us = 1 WHERE id = 1", nullptr, nullptr, nullptr) ==
          SQLITE_OK);
  sqlite3_close(connection);
}

}  // namespace

TEST_CASE("db: export, import, merge, prune, info, doctor and vacuum", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning.db"), other = folder.file("other.db"),
                    exported = folder.file("rows.json");
  {
    TuningDatabase database(file);
    for (const int day : {3, 1, 2}) database.append(row("sm80 q64 kv64 w4 st2", day));
    database.append(row("sm80 q128 kv64 w4 st2", 1, MeasurementStatus::crashed));
  }
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", file}};

  SECTION("export to a file or to stdout, import into another, which exports the same") {
    const CommandResult to_file = run_attune({"db", "export", "--output", exported, "--json"}, environment);
    CHECK(to_file.status == 0);
    CHECK(to_file.json().at("rows") == 4);
    CHECK(run_attune({"db", "export"}, environment).out == read_file(exported));
    for (const int expected : {4, 0}) {
      const CommandResult imported = run_attune({"db", "import", exported, "--database", other, "--json"});
      CHECK(imported.status == 0);
      CHECK(imported.json().at("new") == expected);
      CHECK(imported.json().at("known") == 4 - expected);
    }
    CHECK(run_attune({"db", "export", "--database", other}).out == read_file(exported));
    CHECK_THAT(run_attune({"db", "import", exported, "--database", other}).out, ContainsSubstring("0 new, 4 known"));
    CHECK(run_attune({"db", "export", "--output", folder.file("no/such/folder.json")}, environment).status == 2);
  }
  SECTION("a malformed entry is named, and nothing is imported") {
    run_attune({"db", "export", "--output", exported}, environment);
    std::string text = read_file(exported);
    text.replace(text.rfind("\"sm80"), 5, "\"vax");
    write_file(exported, text);
    const CommandResult refused = run_attune({"db", "import", exported, "--database", other, "--json"});
    CHECK(refused.status == 2);
    CHECK(refused.json().at("code") == "invalid_argument");
    CHECK_THAT(refused.err, ContainsSubstring(exported) && ContainsSubstring("entry 4") && ContainsSubstring("vax"));
    CHECK_FALSE(std::filesystem::exists(other));
    CHECK(run_attune({"db", "import", folder.file("none.json"), "--database", other}).status == 2);
    CHECK(run_attune({"db", "import", folder.path().string(), "--database", other}).status == 2);
  }
  SECTION("a preset and the system database that is made of it") {
    Measurement winner = row("sm80 q64 kv64 w4 st2", 4);
    winner.race = "2025-03-04T00:00:00.000000Z";
    winner.place = 1;
    TuningDatabase(file).append(winner);
    const std::string preset = folder.file("preset.json"), system = folder.file("share/attune/system.db");
    const CommandResult best = run_attune({"db", "export", "--best", "--output", preset, "--json"}, environment);
    CHECK(best.status == 0);
    CHECK(best.json().at("rows") == 1);
    const nlohmann::json entry = nlohmann::json::parse(read_file(preset)).at("measurements").at(0);
    CHECK(entry.at("samples_us").empty());
    CHECK(entry.at("median_us") == 91.25);
    CHECK(entry.at("place") == 1);
    const CommandResult shipped = run_attune({"db", "ship", preset, "--output", system, "--json"});
    CHECK(shipped.status == 0);
    CHECK(shipped.json().at("rows") == 1);
    CHECK(run_attune({"db", "ship", preset, preset, "--output", folder.file("twice.db")}).status == 0);
    CHECK(read_file(folder.file("twice.db")) == read_file(system));
    CHECK(run_attune({"db", "ship", "--output", folder.file("empty.db")}).status == 0);
    CHECK(run_attune({"db", "ship", file, "--output", system}).status == 2);  // not an export
    CHECK(run_attune({"db", "ship", preset}).status == 2);
    const CommandResult listed = run_attune({"db", "best", "--database", folder.file("twice.db")});
    CHECK_THAT(listed.out, ContainsSubstring("place 1 in the race of 2025-03-04"));
    CHECK(run_attune(words("db list --json"), environment).json().at("entries").at(0).at("raced") == 1);
    CHECK_THAT(run_attune(words("db list"), environment).out, ContainsSubstring("4 ok, 1 from a race"));
    CHECK(run_attune({"db", "doctor", "--database", system}).status == 0);
    const std::string bytes = read_file(system);
    const CommandResult looked =
        run_attune({"db", "best", "--json", "--database", system}, {{"ATTUNE_SYSTEM_DATABASE", system}});
    CHECK(looked.json().at("best").size() == 1);
    CHECK(read_file(system) == bytes);
  }
  SECTION("merge") {
    TuningDatabase(other).append(row("sm80 q128 kv128 w8 st2", 5));
    for (const int expected : {1, 0}) {
      const CommandResult merged = run_attune({"db", "merge", other, "--json"}, environment);
      CHECK(merged.status == 0);
      CHECK(merged.json().at("new") == expected);
    }
    const std::string third = folder.file("third.db");
    TuningDatabase(third).append(row("sm80 q64 kv128 w4 st2", 6));
    const CommandResult several = run_attune({"db", "merge", other, third, "--json"}, environment);
    CHECK(several.status == 0);
    CHECK(several.json().at("new") == 1);
    CHECK(several.json().at("known") == 1);
    CHECK(several.json().at("from") == std::vector<std::string>{other, third});
    TuningDatabase(third).append(row("sm80 q32 kv128 w2 st2", 6));
    const CommandResult none = run_attune({"db", "merge", third, folder.file("none.db"), "--json"}, environment);
    CHECK(none.status == 2);
    CHECK(run_attune({"db", "merge", third, "--json"}, environment).json().at("new") == 1);  // nothing was stored of it
    CHECK(run_attune({"db", "merge", folder.file("none.db")}, environment).status == 2);
    CHECK_FALSE(std::filesystem::exists(folder.file("none.db")));
  }
  SECTION("a path that SQLite does not take is told from a file that cannot be opened") {
    std::filesystem::path deep = folder.file("deep");
    while (deep.string().size() < 504) deep /= std::string(50, 'd');
    std::filesystem::create_directories(deep);
    REQUIRE(run_attune({"db", "export", "--output", exported}, environment).status == 0);
    const CommandResult refused = run_attune({"db", "import", exported, "--database", (deep / "a.db").string()});
    CHECK(refused.status == 2);
    CHECK_THAT(refused.err, ContainsSubstring("bytes, and SQLite takes 504; name a shorter one"));
  }
  SECTION("status says which problems of a list are tuned, for each GPU model") {
    const std::string shapes = folder.file("shapes.json");
    write_file(shapes, R"(["forward bf16 b2 hq8 sq1024 d64 causal",
                           {"name": "prefill", "problem": "forward bf16 b2 hq8 sq2048 d64 causal"}])");
    const CommandResult found = run_attune({"db", "status", "--shapes", shapes, "--json"}, environment);
    INFO(found.out << found.err);
    CHECK(found.status == 1);
    CHECK(found.json().at("status") == "not_tuned");
    const nlohmann::json problems = found.json().at("problems");
    REQUIRE(problems.size() == 2);
    CHECK(problems.at(0).at("state") == "stale");  // rows by hand are of no kernel
    CHECK(problems.at(0).at("database") == file);
    CHECK(problems.at(1).at("state") == "missing");
    CHECK(problems.at(1).at("name") == "prefill");
    CHECK(problems.at(1).at("device") == "NVIDIA H200");
    const CommandResult text = run_attune({"db", "status", file, file, "--shapes", shapes, "--target", "h100"});
    CHECK_THAT(text.out, ContainsSubstring("0 tuned, 0 stale, 0 failed, 2 missing") && ContainsSubstring("missing") &&
                             ContainsSubstring("[prefill]"));
    CHECK_THAT(run_attune({"db", "status", "--shapes", shapes, "--format", "csv"}, environment).out,
               ContainsSubstring("problem,name,device,sm_count,state"));
    const std::string system = folder.file("presets.db");
    REQUIRE(run_attune({"db", "export", "--output", exported}, environment).status == 0);
    REQUIRE(run_attune({"db", "ship", exported, "--output", system}).status == 0);
    CHECK_THAT(run_attune({"db", "status", "--presets", "--shapes", shapes},
                          {{"ATTUNE_SYSTEM_DATABASE", system}, {"ATTUNE_DATABASE", other}})
                   .out,
               ContainsSubstring("0 tuned, 1 stale, 0 failed, 1 missing"));
    CHECK_THAT(run_attune({"db", "status"}, environment).err, ContainsSubstring("name the problems that are wanted"));
    CHECK(run_attune({"db", "status", folder.file("none.db"), "--shapes", shapes}).status == 2);
    CHECK_THAT(run_attune({"db", "status", "--shapes", shapes}, {{"ATTUNE_DATABASE", other}}).err,
               ContainsSubstring("name the model with --target"));
  }
  SECTION("prune says what goes, and --dry-run leaves it") {
    const std::vector<std::string> prune = {"db", "prune", "--keep-latest", "1", "--failed-older-than", "30"};
    std::vector<std::string> dry = prune;
    dry.push_back("--dry-run");
    // The row that was stored last stays, whatever its date.
    CHECK_THAT(run_attune(dry, environment).out, ContainsSubstring("3 rows would be removed, 1 kept") &&
                                                     ContainsSubstring("crashed") && ContainsSubstring("2025-03-03") &&
                                                     !ContainsSubstring("2025-03-02"));
    CHECK(run_attune(words("db info --json"), environment).json().at("rows") == 4);
    std::vector<std::string> json = prune;
    json.push_back("--json");
    CHECK(run_attune(json, environment).json().at("removed").size() == 3);
    CHECK(run_attune(words("db info --json"), environment).json().at("rows") == 1);
    CHECK(run_attune(words("db vacuum --json"), environment).json().at("status") == "ok");
    for (const std::string wrong :
         {"db prune", "db prune --keep-latest 0", "db prune --keep-latest -3", "db prune --failed-older-than soon"})
      CHECK(run_attune(words(wrong), environment).status == 2);
  }
  SECTION("info and doctor, before and after a row was changed") {
    const nlohmann::json info = run_attune(words("db info --json"), environment).json();
    CHECK(info.at("rows_by_status") == nlohmann::json{{"crashed", 1}, {"ok", 3}});
    CHECK(info.at("database") == file);
    CHECK_THAT(run_attune(words("db info"), environment).out, ContainsSubstring("4 (problems: 1, devices: 1)"));
    const CommandResult healthy = run_attune(words("db doctor --json"), environment);
    CHECK(healthy.status == 0);
    CHECK(healthy.json().at("findings").empty());
    tamper(file);
    const CommandResult wrong = run_attune(words("db doctor --json"), environment);
    CHECK(wrong.status == 1);
    CHECK(wrong.json().at("findings").at(0).at("check") == "content_hash");
    const CommandResult merged = run_attune({"db", "merge", file, "--database", other, "--json"});
    CHECK(merged.json().at("new") == 3);
    CHECK(merged.json().at("left_out") == 1);
    CHECK_THAT(merged.err, ContainsSubstring("1 rows were changed") && ContainsSubstring("doctor"));
    CHECK_THAT(run_attune(words("db doctor"), environment).out, ContainsSubstring("measurement 1") &&
                                                                    ContainsSubstring("DELETE") &&
                                                                    ContainsSubstring("1 thing is wrong"));
  }
  SECTION("a database that is not there is not made") {
    for (const std::string verb : {"info", "export", "prune --keep-latest 1", "vacuum"}) {
      const bool reads = verb == "info" || verb == "export";
      CHECK(run_attune(words("db " + verb + " --database " + other)).status == (reads ? 1 : 2));
      CHECK_FALSE(std::filesystem::exists(other));
    }
    CHECK(run_attune(words("db doctor --database " + other)).status == 1);
    CHECK_FALSE(std::filesystem::exists(other));
  }
}

namespace {

// Names, bytes and times of everything in a folder.
std::string look_at(const std::filesystem::path& folder) {
  std::string seen;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    seen += entry.path().string() + " " + std::to_string(entry.last_write_time().time_since_epoch().count()) +
            (entry.is_regular_file() ? read_file(entry.path().string()) : "") + "\n";
  }
  return seen + std::to_string(std::filesystem::last_write_time(folder).time_since_epoch().count());
}

void damage_page(const std::string& path, std::size_t page) {
  std::string bytes = read_file(path);
  REQUIRE(bytes.size() >= (page + 1) * 4096);
  for (std::size_t i = page * 4096; i < (page + 1) * 4096; ++i) bytes[i] = static_cast<char>(i * 37);
  write_file(path, bytes);
}

// What stands between backticks.
std::vector<std::string> commands_in(const std::string& advice) {
  std::vector<std::string> commands;
  std::size_t end = 0;
  for (std::size_t begin = advice.find('`'); begin != std::string::npos; begin = advice.find('`', end + 1)) {
    end = advice.find('`', begin + 1);
    commands.push_back(advice.substr(begin + 1, end - begin - 1));
  }
  return commands;
}

}  // namespace

TEST_CASE("verbs that read: a database that is not there, or is none, is said to be so and not touched", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning.db");
  int status = 2;
  std::string expected;
  SECTION("a name with a mistake in it") {
    status = 1;
    expected = "there is no such database: " + file;
  }
  SECTION("text") {
    write_file(file, std::string(9000, 'x'));
    expected = "not a tuning database";
  }
  SECTION("damaged") {
    for (int i = 0; i < 60; ++i) {
      Measurement m = row("sm80 q64 kv64 w4 st2", 1);
      m.samples_us[0] = i;
      TuningDatabase(file).append(m);
    }
    damage_page(file, 1);
    expected = "corrupt";
  }
  SECTION("another program's") {
    sqlite3* connection = nullptr;
    sqlite3_open(file.c_str(), &connection);
    sqlite3_exec(connection, "CREATE TABLE recipes (name TEXT)", nullptr, nullptr, nullptr);
    sqlite3_close(connection);
    expected = "another program";
  }
  SECTION("a folder") {
    std::filesystem::create_directory(file);
    expected = "a folder";
  }
  const std::string before = look_at(folder.path());
  const std::vector<std::vector<std::string>> verbs = {
      {"db", "list"},
      {"db", "best"},
      {"db", "info"},
      {"db", "doctor"},
      {"report", "--output", folder.file("page.html")},
      {"explain", "--problem", "forward bf16 b2 hq8 sq1024 d64 causal", "--target", "h200"},
      {"show", "plan", "--problem", "forward bf16 b2 hq8 sq1024 d64 causal", "--target", "h200"}};
  for (std::vector<std::string> verb : verbs) {
    const bool doctor = verb[1] == "doctor";
    verb.insert(verb.end(), {"--database", file});
    const CommandResult result = run_attune(verb, kNoGpu);
    INFO(verb[0] << " " << verb[1] << ": " << result.out << result.err);
    CHECK(result.status == (doctor ? 1 : status));
    CHECK_THAT(result.out + result.err, ContainsSubstring(file));
    if (!doctor || status == 1) CHECK_THAT(result.err, ContainsSubstring(expected));
    CHECK_THAT(result.out + result.err, !ContainsSubstring("holds no results"));
    verb.push_back("--json");
    CHECK(run_attune(verb, kNoGpu).json().at("status") == (doctor && status != 1 ? "wrong" : "error"));
    CHECK(look_at(folder.path()) == before);
  }
}

TEST_CASE("at the default place there need be no database yet", "[nogpu]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  for (const std::string verb : {"list", "info", "doctor"}) {
    const CommandResult result = run_attune({"db", verb}, environment);
    INFO(verb);
    CHECK(result.status == 0);
    CHECK_THAT(result.out, ContainsSubstring("nothing was tuned"));
  }
  CHECK(run_attune(words("db export"), environment).status == 0);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("what the doctor advises works: a damaged database, and one with a foreign trigger", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("it's mine.db");
  constexpr int kRows = 300;
  {
    TuningDatabase database(file);
    std::vector<Measurement> rows;
    for (int i = 0; i < kRows; ++i) {
      rows.push_back(row("sm80 q64 kv64 w4 st2", 1));
      rows.back().samples_us[0] = i;
    }
    database.append_all(rows);
  }
  int least = kRows;
  SECTION("a page of rows") {
    damage_page(file, std::filesystem::file_size(file) / 4096 / 2);
    least = kRows - 40;
  }
  SECTION("a trigger") {
    sqlite3* connection = nullptr;
    sqlite3_open(file.c_str(), &connection);
    REQUIRE(
        sqlite3_exec(connection,
                     "CREATE TRIGGER \"$(touch spied)\" AFTER INSERT ON measurement BEGIN DELETE FROM measurement; END",
                     nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(connection);
  }
  SECTION("one flipped bit of the schema's number") {
    std::string bytes = read_file(file);
    bytes[60] = static_cast<char>(bytes[60] ^ 0x80);
    write_file(file, bytes);
  }
  const CommandResult diagnosis = run_attune({"db", "doctor", "--database", file, "--json"});
  REQUIRE(diagnosis.status == 1);
  const std::vector<std::string> commands =
      commands_in(diagnosis.json().at("findings").at(0).at("advice").get<std::string>());
  REQUIRE(commands.size() == 3);
  const std::string bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  for (const std::string& command : commands) {
    INFO(command);
    REQUIRE(std::system(
                ("cd '" + folder.path().string() + "' && PATH='" + bin + "':$PATH && " + command + " >/dev/null 2>>log")
                    .c_str()) == 0);
  }
  CHECK_FALSE(std::filesystem::exists(folder.file("spied")));
  CHECK(run_attune({"db", "doctor", "--database", file}).status == 0);
  const auto rows = run_attune({"db", "info", "--database", file, "--json"}).json().at("rows").get<int>();
  CHECK(rows >= least);
  CHECK(rows <= kRows);
}

TEST_CASE("db carry: rows get the hashes that their kernels have now", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning.db"), list = folder.file("hashes.json"),
                    exported = folder.file("rows.json");
  {
    TuningDatabase database(file);
    for (const int day : {1, 2, 3}) {
      Measurement m = row("sm80 q64 kv64 w4 st2", day);
      m.source_hash = day == 3 ? "0123456789abcdef" : "59512bcf7d27da8b";
      database.append(m);
    }
  }
  const auto carry = [&](const std::string& text) {
    write_file(list, text);
    return run_attune({"db", "carry", list, "--database", file, "--json"});
  };
  const CommandResult carried =
      carry(R"({"format": "attune source hashes", "version": 1, "hashes": {"59512bcf7d27da8b": "858ebd34b3d0afa1", )"
            R"("aaaaaaaaaaaaaaaa": "bbbbbbbbbbbbbbbb"}})");
  INFO(carried.err);
  CHECK(carried.status == 0);
  CHECK(carried.json().at("hashes") == 2);
  CHECK(carried.json().at("carried") == 2);
  CHECK(carried.json().at("others") == 1);
  CHECK(run_attune({"db", "doctor", "--database", file}).status == 0);
  const std::string text = run_attune({"db", "export", "--database", file}).out;
  CHECK_THAT(text, ContainsSubstring("\"source_hash\": \"858ebd34b3d0afa1\"") &&
                       ContainsSubstring("\"source_hash\": \"0123456789abcdef\"") &&
                       !ContainsSubstring("59512bcf7d27da8b"));
  CHECK_THAT(run_attune({"db", "carry", list, "--database", file}).out, ContainsSubstring("0 carried over, 3 others"));
  for (const auto& [bad, said] :
       {std::pair("[]", "is no list of source hashes"), std::pair("{", "is not JSON"),
        std::pair(R"({"format": "attune source hashes", "version": 2, "hashes": {}})", "version 2"),
        std::pair(R"({"format": "attune source hashes", "version": 1, "hashes": {"5": "6"}})", "16 hexadecimal digits"),
        std::pair(R"({"format": "attune source hashes", "version": 1, "hashes":
                                            {"59512bcf7d27da8b": 6}})",
                  "16 hexadecimal digits")}) {
    const CommandResult refused = carry(bad);
    CHECK(refused.status == 2);
    CHECK_THAT(refused.err, ContainsSubstring("hashes.json") && ContainsSubstring(said));
  }
  CHECK(run_attune({"db", "carry", folder.file("none.json"), "--database", file}).status == 2);
  write_file(list, R"({"format": "attune source hashes", "version": 1, "hashes": {}})");
  CHECK_THAT(run_attune({"db", "carry", list, "--database", folder.file("none.db")}).err,
             ContainsSubstring("there is no such database"));
}

TEST_CASE("db import, merge and export: times that are none stay out", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning.db"), other = folder.file("other.db"),
                    exported = folder.file("rows.json");
  TuningDatabase(file).append(row("sm80 q64 kv64 w4 st2", 1));
  std::string text = run_attune({"db", "export", "--database", file}).out;
  const std::string time = "2025-03-01T00:00:00.000000Z";
  text.replace(text.find(time), time.size(), "2026-99-99T99:99:99Z");
  write_file(exported, text);
  const CommandResult refused = run_attune({"db", "import", exported, "--database", other});
  CHECK(refused.status == 2);
  CHECK_THAT(refused.err, ContainsSubstring("created_at") && ContainsSubstring("2026-99-99T99:99:99Z"));
  text.replace(text.find("2026-99-99T99:99:99Z"), 20, "2026-01-31T12:00:00.9Z");
  write_file(exported, text);
  CHECK(run_attune({"db", "import", exported, "--database", other}).status == 0);
  CHECK_THAT(run_attune({"db", "export", "--database", other}).out,
             ContainsSubstring("\"created_at\": \"2026-01-31T12:00:00.900000Z\""));
}
