// `tune` of a list: its shards, its time limit, when it is interrupted, and by a command of another name.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

TEST_CASE("Ctrl-C: a problem that a list did not reach is told to be one", "[emulator]") {
  const TemporaryFolder folder;
  const std::string log = folder.file("log"), shapes = folder.file("shapes.json"), out = folder.file("out");
  write_file(shapes, R"(["forward bf16 b1 hq2 sq48 d64", "forward bf16 b1 hq2 sq64 d64"])");
  const std::string tune = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attune").string() +
                           " tune --device emulator --target a100 --progress plain --shapes " + shapes +
                           " --database " + folder.file("tuning.db");
  write_file(folder.file("script"), "set -m\n" + tune + " >" + out + " 2>" + log +
                                        " &\n"
                                        "child=$!\n"
                                        "for i in $(seq 600); do grep -q 'best:' " +
                                        log +
                                        " && break; sleep 0.1; done\n"
                                        "kill -INT -$child\nwait $child\n");
  REQUIRE(std::system(("bash " + folder.file("script")).c_str()) == 130 << 8);
  const std::string said = read_file(out);
  INFO(said << read_file(log));
  const std::size_t second = said.find("sq64");
  REQUIRE(second != std::string::npos);
  CHECK_THAT(said.substr(second), ContainsSubstring("status         not begun"));
  CHECK_THAT(said.substr(0, second), !ContainsSubstring("not begun"));
}

TEST_CASE("the command finds itself under another name", "[emulator]") {
  const TemporaryFolder folder;
  const std::string renamed = folder.file("attune-0.1");
  std::filesystem::copy_file(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attune", renamed);
  const std::string tune = "env -u ATTUNE_COMMAND " + renamed + " tune --max-candidates 1" + kShape + kEmulator +
                           " --database " + folder.file("tuning.db") + " >" + folder.file("out") + " 2>&1";
  const int status = std::system(tune.c_str());
  INFO(read_file(folder.file("out")));
  CHECK(status == 0);
}

TEST_CASE("tune of a list in shards of about the same time", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string shapes = folder.file("shapes.csv");
  // The first takes as long as all others together.
  write_file(shapes, "batch,heads,seq,head-dim\n64,16,16384,64\n1,2,48,64\n1,2,33,32\n1,1,40,16\n");
  const std::string tune = "tune --max-candidates 1 --json --progress none" + kEmulator + " --shapes " + shapes;
  const auto problems_of = [&](const std::string& shard) {
    const CommandResult result = run_attune(words(tune + " --shard " + shard), environment);
    INFO(result.err);
    REQUIRE(result.status == 0);
    const nlohmann::json document = result.json();
    std::vector<std::string> problems;
    for (const nlohmann::json& entry : document.at("results")) problems.push_back(entry.at("problem"));
    return problems;
  };
  CHECK(problems_of("1/2") == std::vector<std::string>{"forward bf16 b64 hq16 sq16384 d64"});
  CHECK(problems_of("2/2") == std::vector<std::string>{"forward bf16 b1 hq2 sq48 d64", "forward bf16 b1 hq2 sq33 d32",
                                                       "forward bf16 b1 hq1 sq40 d16"});
}

TEST_CASE("after the time limit no problem is begun, and the same command goes on", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string shapes = folder.file("shapes.csv");
  write_file(shapes, "heads,seq,head-dim\n2,48,64\n2,33,32\n");
  const std::string tune = "tune --max-candidates 1 --progress none" + kEmulator + " --shapes " + shapes;
  const CommandResult over = run_attune(words(tune + " --json --time-limit 0.000001"), environment);
  INFO(over.err);
  CHECK(over.status == 1);
  const nlohmann::json nothing = over.json();
  REQUIRE(nothing.at("results").size() == 2);
  for (const nlohmann::json& entry : nothing.at("results")) CHECK(entry.at("status") == "not_begun");
  CHECK_THAT(over.err, ContainsSubstring("2 of 2 problems were not begun"));
  CHECK_THAT(run_attune(words(tune + " --time-limit 0.000001"), environment).out, ContainsSubstring("not begun"));

  const CommandResult enough = run_attune(words(tune + " --json --time-limit 1h"), environment);
  INFO(enough.err);
  CHECK(enough.status == 0);
  const nlohmann::json all = enough.json();
  REQUIRE(all.at("results").size() == 2);
  for (const nlohmann::json& entry : all.at("results")) CHECK(entry.at("status") == "ok");
}
