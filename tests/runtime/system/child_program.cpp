#include "runtime/system/child_program.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

fs::path write_program(const fs::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

}  // namespace

TEST_CASE("a program's output and status are told, its input is empty", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path program = write_program(folder.path() / "program", "cat; echo \"$1\"; echo complaint >&2; exit 3");
  const ChildProgramResult both = run_program(program, {"a word"}, ChildOutput::both, 1000);
  CHECK(both.status == 3);
  CHECK(both.output == "a word\ncomplaint\n");
  CHECK_FALSE(both.cut);
  CHECK(run_program("/bin/sh", {"-c", "kill -9 $$"}, ChildOutput::standard_output, 10).status == 128 + 9);
  CHECK_THROWS_WITH(run_program("/no/such/program", {}, ChildOutput::both, 10),
                    ContainsSubstring("cannot run /no/such/program: No such file"));
}

TEST_CASE("of endless output only the beginning is kept, and the program ends", "[nogpu]") {
  const ChildProgramResult result =
      run_program("/bin/sh", {"-c", "head -c 50000000 /dev/zero"}, ChildOutput::standard_output, 1000);
  CHECK(result.status == 0);
  CHECK(result.output == std::string(1000, '\0'));
  CHECK(result.cut);
}

TEST_CASE("nobody waits for what a program has left running", "[nogpu]") {
  const auto begin = std::chrono::steady_clock::now();
  const ChildProgramResult result =
      run_program("/bin/sh", {"-c", "sleep 20 & echo $!; exit 2"}, ChildOutput::both, 100);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  CHECK(result.status == 2);
  REQUIRE_FALSE(result.output.empty());
  ::kill(std::stoi(result.output), SIGKILL);
}

TEST_CASE("programs are searched in absolute folders of PATH only", "[nogpu]") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "bin");
  write_program(folder.path() / "planted-compiler", "exit 0");
  const std::string path = std::getenv("PATH");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* folders : {"", ":/usr/bin", "/usr/bin:", ".", "./:/usr/bin", "/usr/bin::/bin"}) {
    ::setenv("PATH", folders, 1);
    CHECK_FALSE(find_program("planted-compiler"));
  }
  CHECK(find_program("./planted-compiler") == fs::path("./planted-compiler"));  // who writes so wants so
  ::setenv("PATH", ("::" + (folder.path() / "bin").string() + ":" + folder.path().string()).c_str(), 1);
  CHECK(find_program("planted-compiler") == folder.path() / "planted-compiler");
  fs::current_path(before);
  ::setenv("PATH", path.c_str(), 1);
  CHECK_FALSE(find_program("no-such-program-anywhere"));
}
