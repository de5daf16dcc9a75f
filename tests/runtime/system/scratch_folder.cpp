#include "runtime/system/scratch_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/temporary_folder.h"

using attune::ScratchFolder;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace scratch_folder_test {
namespace {

constexpr const char* kPrefix = "attune-read-";

// A process that has made one, with a file in it.
class Owner {
 public:
  explicit Owner(const fs::path& parent) {
    int ready[2] = {-1, -1};
    REQUIRE(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      const ScratchFolder theirs(parent, kPrefix);
      std::ofstream(theirs.path() / "copy.db") << "rows";
      const std::string name = theirs.path().filename();
      static_cast<void>(!::write(ready[1], name.data(), name.size()));
      ::alarm(60);  // should the test end before
      for (;;) ::pause();
    }
    REQUIRE(process_ > 0);
    char name[64] = {};
    REQUIRE(::read(ready[0], name, sizeof(name) - 1) > 0);
    for (const int end : ready) ::close(end);
    folder_ = parent / name;
  }
  ~Owner() { kill(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  const fs::path& folder() const { return folder_; }

 private:
  pid_t process_ = 0;
  fs::path folder_;
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST_CASE("a scratch folder is this user's alone, and goes away with its object", "[nogpu]") {
  const TemporaryFolder folder;
  {
    const ScratchFolder scratch(folder.path(), kPrefix), other(folder.path(), kPrefix);
    CHECK(scratch.path() != other.path());
    struct stat facts {};
    REQUIRE(::lstat(scratch.path().c_str(), &facts) == 0);
    CHECK(S_ISDIR(facts.st_mode));
    CHECK((facts.st_mode & 0777u) == 0700);
    std::ofstream(scratch.path() / "file") << "text";
  }
  CHECK(names_in(folder.path()).empty());
  CHECK_THROWS_AS(ScratchFolder(folder.path() / "missing", kPrefix), fs::filesystem_error);
}

TEST_CASE("what a killed process left goes away with the next scratch folder, and nothing else does", "[nogpu]") {
  const TemporaryFolder folder;
  Owner killed(folder.path());
  const Owner alive(folder.path());
  // What only looks like one: a file, a link to a folder with a file, another use's, and names of other lengths.
  const fs::path kept = folder / "kept";
  fs::create_directories(kept);
  std::ofstream(kept / "file") << "text";
  std::ofstream(folder / "attune-read-abcdef") << "text";
  fs::create_directory_symlink(kept, folder / "attune-read-ghijkl");
  for (const char* name : {"attune-sass-abcdef", "attune-read-abcdefg", "attune-unsaved-abcdef"})
    fs::create_directories(folder / name);
  const std::size_t before = names_in(folder.path()).size();
  { const ScratchFolder scratch(folder.path(), kPrefix); }
  CHECK(names_in(folder.path()).size() == before);
  killed.kill();
  REQUIRE(fs::exists(killed.folder() / "copy.db"));
  { const ScratchFolder scratch(folder.path(), kPrefix); }
  CHECK_FALSE(fs::exists(killed.folder()));
  CHECK(fs::exists(alive.folder() / "copy.db"));
  CHECK(fs::exists(kept / "file"));
  CHECK(names_in(folder.path()).size() == before - 1);
}

TEST_CASE("a dead process's scratch folder stays if it is another user's", "[nogpu]") {
  if (::geteuid() != 0) {
    SUCCEED("only root can give a folder away");
    return;
  }
  const TemporaryFolder folder;
  Owner theirs(folder.path());
  theirs.kill();
  REQUIRE(::chown(theirs.folder().c_str(), 12345, 12345) == 0);
  { const ScratchFolder scratch(folder.path(), kPrefix); }
  CHECK(fs::exists(theirs.folder() / "copy.db"));
}

}  // namespace
}  // namespace scratch_folder_test
