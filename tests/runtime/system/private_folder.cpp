#include "runtime/system/private_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "attune/log.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;
using State = PrivateFolder::State;

namespace {

constexpr uid_t kSomebodyElse = 54321;

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t count_entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
}

}  // namespace

TEST_CASE("a private folder is made for its user alone, each component of it", "[nogpu]") {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0);
  const PrivateFolder made(folder.path() / "a" / "b" / "c");
  const bool written = made.write("file", "contents");
  ::umask(before);
  INFO(made.complaint());
  REQUIRE(made.usable());
  CHECK(made.writable());
  for (const char* path : {"a", "a/b", "a/b/c"}) CHECK(mode_of(folder.path() / path) == 0700);
  REQUIRE(written);
  CHECK(mode_of(folder.path() / "a/b/c/file") == 0600);
  CHECK(made.read("file", 100) == "contents");
  CHECK(count_entries(made.path()) == 1);
}

TEST_CASE("a folder that somebody else may have written to is refused with a way out", "[nogpu]") {
  const TemporaryFolder folder;
  const auto refused = [](const PrivateFolder& opened, const std::string& words, const std::string& way_out) {
    CHECK(opened.state() == State::unsafe);
    CHECK_FALSE(opened.writable());
    CHECK_THAT(opened.complaint(), ContainsSubstring(words) && ContainsSubstring(way_out) &&
                                       ContainsSubstring("name another folder with ATTUNE_CACHE_DIR"));
  };
  const fs::path cache = folder.path() / "cache";
  fs::create_directory(cache);
  for (const mode_t mode : {0770, 0707, 0777, 01777, 0720}) {
    REQUIRE(::chmod(cache.c_str(), mode) == 0);
    refused(PrivateFolder(cache), "others than its owner can write to it", "chmod go-w " + cache.string());
  }
  REQUIRE(::chmod(cache.c_str(), 0755) == 0);
  CHECK(PrivateFolder(cache).usable());

  fs::create_directory_symlink(cache, folder.path() / "link");
  refused(PrivateFolder(folder.path() / "link"), "symbolic link", "remove it");
  refused(PrivateFolder(folder.path() / "link/"), "symbolic link", "remove it");
  CHECK(PrivateFolder(folder.path() / "link" / "below").usable());  // a link among the parents only leads there

  REQUIRE(::chmod(cache.c_str(), 0777) == 0);
  refused(PrivateFolder(cache / "mine"), "can be written by everybody", "chmod o-w " + cache.string());
  REQUIRE(::chmod(cache.c_str(), 01777) == 0);
  CHECK(PrivateFolder(cache / "mine").usable());  // as in /tmp
}

TEST_CASE("a folder of another user is refused", "[nogpu]") {
  const TemporaryFolder folder;
  // Asked on behalf of somebody else, this user is the other one; but root is trusted.
  const PrivateFolder seen(folder.path(), kSomebodyElse);
  if (::geteuid() != 0) {
    CHECK(seen.state() == State::unsafe);
    CHECK_THAT(seen.complaint(), ContainsSubstring("it belongs to user " + std::to_string(::geteuid())));
    CHECK(PrivateFolder("/usr").usable());
    CHECK_FALSE(PrivateFolder("/usr").writable());
    return;
  }
  CHECK(seen.usable());
  const fs::path planted = folder.path() / "attune-emulator-0";
  fs::create_directory(planted);
  REQUIRE(::chown(planted.c_str(), kSomebodyElse, kSomebodyElse) == 0);
  const PrivateFolder opened(planted);
  CHECK(opened.state() == State::unsafe);
  CHECK_THAT(opened.complaint(),
             ContainsSubstring("it belongs to user 54321, and this process runs as user 0: run chown 0 "));
}

TEST_CASE("what cannot be made or opened is unavailable, not unsafe", "[nogpu]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  for (const fs::path& path : {folder.path() / "file", folder.path() / "file" / "cache", fs::path("/proc/attune"),
                               fs::path("/"), fs::path()}) {
    const PrivateFolder opened(path);
    CHECK(opened.state() == State::unavailable);
    CHECK_THAT(opened.complaint(), ContainsSubstring("is not used as a cache: it"));
    CHECK_FALSE(opened.read("file", 100));
    CHECK_FALSE(opened.write("file", "text"));
  }
  CHECK(contents(folder.path() / "file") == "in the way");
}

TEST_CASE("only trustworthy regular files are read, and none makes the reader wait", "[nogpu]") {
  const TemporaryFolder folder;
  const PrivateFolder opened(folder.path());
  REQUIRE(opened.write("file", "text"));
  std::string why;
  const auto refused = [&](const char* name, const std::string& words) {
    why.clear();
    CHECK_FALSE(opened.read(name, 100, &why));
    CHECK_THAT(why, ContainsSubstring(words));
  };
  REQUIRE(::mkfifo((folder.path() / "fifo").c_str(), 0600) == 0);
  refused("fifo", "it is a FIFO, not a file");
  fs::create_directory(folder.path() / "folder");
  refused("folder", "it is a folder, not a file");
  fs::create_symlink("file", folder.path() / "link");
  refused("link", "it is a symbolic link");
  fs::create_symlink("/dev/zero", folder.path() / "zero");
  refused("zero", "it is a symbolic link");
  refused("none", "No such file");
  CHECK_FALSE(opened.read("file", 3, &why));
  CHECK_THAT(why, ContainsSubstring("more than 3 bytes"));
  CHECK(opened.read("file", 4) == "text");
  REQUIRE(::chmod((folder.path() / "file").c_str(), 0620) == 0);
  refused("file", "others than its owner can write to it");
  if (::geteuid() == 0) {
    REQUIRE(::chmod((folder.path() / "file").c_str(), 0600) == 0);
    REQUIRE(::chown((folder.path() / "file").c_str(), kSomebodyElse, kSomebodyElse) == 0);
    refused("file", "it belongs to user 54321");
  }
  CHECK(opened.write("link", "anew"));  // the link is replaced, not followed
  CHECK_FALSE(fs::is_symlink(folder.path() / "link"));
  CHECK(contents(folder.path() / "file") == "text");
}

TEST_CASE("a folder that is exchanged after it was opened changes nothing", "[nogpu]") {
  const TemporaryFolder folder;
  const PrivateFolder opened(folder.path() / "cache");
  REQUIRE(opened.write("object", "ours"));
  fs::rename(folder.path() / "cache", folder.path() / "away");
  fs::create_directory(folder.path() / "cache");
  std::ofstream(folder.path() / "cache" / "object") << "theirs";
  CHECK(opened.read("object", 100) == "ours");
  REQUIRE(opened.write("second", "ours"));
  CHECK(fs::exists(folder.path() / "away" / "second"));
  opened.remove("object");
  CHECK_FALSE(fs::exists(folder.path() / "away" / "object"));
  CHECK(contents(folder.path() / "cache" / "object") == "theirs");
}

TEST_CASE("temporary folders have names that nobody can foretell; old ones are removed", "[nogpu]") {
  const TemporaryFolder folder;
  const PrivateFolder opened(folder.path());
  fs::path left;
  {
    const PrivateFolder first = opened.make_temporary(".building-");
    REQUIRE(first.writable());
    CHECK(first.name().size() == std::string(".building-").size() + 24);
    CHECK(mode_of(first.path()) == 0700);
    REQUIRE(first.write("kernel.cpp", "text"));
    left = first.path();
  }
  const PrivateFolder second = opened.make_temporary(".building-");
  REQUIRE(second.writable());
  CHECK(left != second.path());
  REQUIRE(opened.write("kept", "text"));
  REQUIRE(opened.write(".building-file", "text"));
  for (const fs::path& path : {left, opened.path() / "kept", opened.path() / ".building-file"}) make_old(path);
  opened.remove_older(".building-", std::chrono::hours(1));
  CHECK_FALSE(fs::exists(left));
  CHECK_FALSE(fs::exists(opened.path() / ".building-file"));
  CHECK(fs::exists(second.path()));
  CHECK(fs::exists(opened.path() / "kept"));
  CHECK(count_entries(folder.path()) == 2);
}

TEST_CASE("a temporary folder stays as long as somebody has it open, however old it looks", "[nogpu]") {
  const TemporaryFolder folder;
  const PrivateFolder opened(folder.path());
  int ready[2] = {-1, -1};
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const PrivateFolder theirs = PrivateFolder(folder.path()).make_temporary(".building-");
    static_cast<void>(!::write(ready[1], theirs.name().data(), theirs.name().size()));
    ::alarm(60);  // should the test end before
    for (;;) ::pause();
  }
  REQUIRE(child > 0);
  char name[64] = {};
  REQUIRE(::read(ready[0], name, sizeof(name) - 1) > 0);
  for (const int end : ready) ::close(end);
  const fs::path theirs = folder.path() / name;
  PrivateFolder ours = opened.make_temporary(".building-");
  const PrivateFolder moved = std::move(ours);
  for (const fs::path& path : {theirs, moved.path()}) make_old(path);
  opened.remove_older(".building-", std::chrono::hours(1));
  CHECK(fs::exists(theirs));
  CHECK(fs::exists(moved.path()));
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  opened.remove_older(".building-", std::chrono::hours(1));
  CHECK_FALSE(fs::exists(theirs));
  CHECK(fs::exists(moved.path()));
}

TEST_CASE("a home folder of somebody else keeps no cache, and that is said once", "[nogpu]") {
  if (::geteuid() != 0) SUCCEED("only root can make such a folder");
  const TemporaryFolder home;
  if (::geteuid() == 0) REQUIRE(::chown(home.path().c_str(), kSomebodyElse, kSomebodyElse) == 0);
  std::vector<std::pair<std::string, std::string>> kept;
  for (const char* name : {"ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
    if (const char* value = std::getenv(name)) kept.emplace_back(name, value);
    ::unsetenv(name);
  }
  ::setenv("HOME", home.path().c_str(), 1);
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // which the specification says is to be ignored
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); }, LogLevel::warning);
  const std::vector<CacheFolder> folders = cache_folders("cubins", {});
  cache_folders("cubins", {});
  set_log_sink({});
  ::unsetenv("HOME");
  ::unsetenv("XDG_CACHE_HOME");
  for (const auto& [name, value] : kept) ::setenv(name.c_str(), value.c_str(), 1);
  if (::geteuid() == 0) {
    REQUIRE(folders.size() == 1);
    CHECK(folders[0].path.filename() == "attune-cubins-0");
    REQUIRE(heard.size() == 1);
    CHECK_THAT(heard[0], ContainsSubstring("which belongs to user 54321, but this process runs as user 0") &&
                             ContainsSubstring("ATTUNE_CACHE_DIR"));
  } else {
    CHECK(folders.size() == 2);
    CHECK(heard.empty());
  }
}
