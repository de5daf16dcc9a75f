// `tune` of a list that is interrupted, and by a command of another name.
#include <cstdlib>
#include <filesystem>

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
