#include "runtime/cuda/cubin_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "attune/log.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace cubin_cache_test {
namespace {

KernelLaunch launch_of(int number) {
  KernelLaunch launch;
  launch.source = "extern \"C\" __global__ void k(int* p) { *p = " + std::to_string(number) + "; }\n";
  launch.lines = {{"tests/k", 1}};
  launch.entry = "k";
  launch.arch = "sm_80";
  return launch;
}

// Entries of a cache, without what is under construction.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != ".incoming") found.push_back(entry.path());
  }
  return found;
}

// The variables that name a cache, unset until the end of the scope.
class CacheEnvironment {
 public:
  CacheEnvironment() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) kept_.emplace_back(name, value);
      ::unsetenv(name);
    }
  }
  ~CacheEnvironment() {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : kept_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static constexpr const char* kNames[] = {"ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> kept_;
};

bool nothing_left_over(const fs::path& folder) { return fs::is_empty(folder / ".incoming"); }

}  // namespace

TEST_CASE("a second get comes from the cache, with log and resources", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  const CompiledText first = cache.get(launch_of(1)), second = cache.get(launch_of(1));
  CHECK_FALSE(first.resources.from_cache);
  CHECK(second.resources.from_cache);
  CHECK(second.image == first.image);
  CHECK(second.resources.log == first.resources.log);
  CHECK(second.resources.registers == first.resources.registers);
  CHECK(second.resources.compile_ms == Approx(first.resources.compile_ms));
  REQUIRE(entries(folder.path()).size() == 1);
  for (const char* file : {"kernel.cubin", "log.txt", "resources.txt"})
    CHECK(fs::exists(entries(folder.path())[0] / file));
  CHECK(nothing_left_over(folder.path()));
}

TEST_CASE("source, architecture and nothing of the launch's size make the key", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  cache.get(launch_of(1));
  CHECK_FALSE(cache.get(launch_of(2)).resources.from_cache);
  KernelLaunch other = launch_of(1);
  other.arch = "sm_86";
  CHECK_FALSE(cache.get(other).resources.from_cache);
  other = launch_of(1);
  other.shared_bytes = 1 << 16;
  // What the first line says of config and class is no part of the code.
  other.source = "// attune forward of another class · source 0\n" + other.source;
  const CompiledText same_code = cache.get(other);
  CHECK(same_code.resources.from_cache);
  CHECK(same_code.resources.shared_bytes == 1 << 16);
}

TEST_CASE("a damaged entry is rebuilt", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  const CompiledText good = cache.get(launch_of(1));
  const fs::path entry = entries(folder.path()).at(0);
  SECTION("cut") { fs::resize_file(entry / "kernel.cubin", good.image.size() / 2); }
  SECTION("another byte") {
    std::fstream file(entry / "kernel.cubin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put(static_cast<char>(good.image[200] + 1));
  }
  SECTION("no log") { fs::remove(entry / "log.txt"); }
  SECTION("no description") { fs::remove(entry / "resources.txt"); }
  SECTION("a description that is cut") { std::ofstream(entry / "resources.txt") << "cubin_hash "; }
  SECTION("a description of other types") { std::ofstream(entry / "resources.txt") << "cubin_hash 7\nlog_hash\n"; }
  SECTION("an empty folder") {
    fs::remove_all(entry);
    fs::create_directory(entry);
  }
  const CompiledText rebuilt = cache.get(launch_of(1));
  CHECK_FALSE(rebuilt.resources.from_cache);
  CHECK(rebuilt.image == good.image);
  CHECK(cache.get(launch_of(1)).resources.from_cache);
  CHECK(nothing_left_over(folder.path()));
}

TEST_CASE("an entry under the key of another kernel is never served", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  const CompiledText one = cache.get(launch_of(1));
  const fs::path of_one = entries(folder.path()).at(0);
  const CompiledText two = cache.get(launch_of(2));
  std::vector<fs::path> both = entries(folder.path());
  REQUIRE(both.size() == 2);
  const fs::path of_two = both[0] == of_one ? both[1] : both[0];
  REQUIRE(one.image != two.image);
  SECTION("two folders that were exchanged") {
    fs::rename(of_one, folder.path() / ".between");
    fs::rename(of_two, of_one);
    fs::rename(folder.path() / ".between", of_two);
  }
  SECTION("files of one in the folder of the other") {
    for (const char* file : {"kernel.cubin", "log.txt", "resources.txt"})
      fs::copy_file(of_two / file, of_one / file, fs::copy_options::overwrite_existing);
  }
  SECTION("a description without a key, as older versions wrote it") {
    std::ifstream file(of_one / "resources.txt");
    std::string kept, line;
    while (std::getline(file, line)) kept += line.starts_with("key ") ? "" : line + "\n";
    std::ofstream(of_one / "resources.txt") << kept;
  }
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); }, LogLevel::info);
  const CompiledText again = cache.get(launch_of(1));
  set_log_sink({});
  CHECK_FALSE(again.resources.from_cache);
  CHECK(again.image == one.image);
  REQUIRE(heard.size() == 1);
  CHECK_THAT(heard[0], ContainsSubstring("is compiled again: it does not say that it is of this kernel"));
  CHECK(cache.get(launch_of(2)).image == two.image);
  CHECK(cache.get(launch_of(1)).resources.from_cache);
}

TEST_CASE("whatever stands in the place of an entry or its files is replaced, and nobody waits", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  const CompiledText good = cache.get(launch_of(1));
  const fs::path entry = entries(folder.path()).at(0);
  const auto make_fifo = [](const fs::path& path) {
    fs::remove_all(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  };
  SECTION("a FIFO as cubin") { make_fifo(entry / "kernel.cubin"); }
  SECTION("a FIFO as log") { make_fifo(entry / "log.txt"); }
  SECTION("a FIFO as description") { make_fifo(entry / "resources.txt"); }
  SECTION("a FIFO as entry") { make_fifo(entry); }
  SECTION("a file as entry") {
    fs::remove_all(entry);
    std::ofstream(entry) << "in the way";
  }
  SECTION("a link to an entry elsewhere") {
    fs::rename(entry, folder.path() / ".elsewhere");
    fs::create_directory_symlink(folder.path() / ".elsewhere", entry);
  }
  SECTION("a link to a cubin elsewhere") {
    fs::rename(entry / "kernel.cubin", folder.path() / ".cubin");
    fs::create_symlink(folder.path() / ".cubin", entry / "kernel.cubin");
  }
  SECTION("a cubin that others can write to") { REQUIRE(::chmod((entry / "kernel.cubin").c_str(), 0666) == 0); }
  SECTION("an entry that others can write to") { REQUIRE(::chmod(entry.c_str(), 0777) == 0); }
  const CompiledText rebuilt = cache.get(launch_of(1));
  CHECK_FALSE(rebuilt.resources.from_cache);
  CHECK(rebuilt.image == good.image);
  CHECK(fs::is_directory(fs::symlink_status(entry)));
  CHECK(cache.get(launch_of(1)).resources.from_cache);
  CHECK(nothing_left_over(folder.path()));
}

TEST_CASE("a cache that others may have written to is refused if it is named, else passed over", "[nvrtc]") {
  const TemporaryFolder folder;
  const fs::path shared = folder.path() / "shared";
  CubinCache(shared).get(launch_of(1));
  REQUIRE(::chmod(shared.c_str(), 0770) == 0);
  CHECK_THROWS_WITH(CubinCache(shared).get(launch_of(1)),
                    ContainsSubstring(shared.string() + " is not used as a cache") && ContainsSubstring("chmod go-w"));
  CHECK_THROWS_WITH(CubinCache(shared).rebuild(launch_of(1)), ContainsSubstring("chmod go-w"));

  std::vector<std::string> heard;
  {
    const CacheEnvironment environment;
    const fs::path in_home = folder.path() / "home" / ".cache" / "attune" / "cubins";
    ::setenv("HOME", (folder.path() / "home").c_str(), 1);
    ::setenv("XDG_CACHE_HOME", (folder.path() / "xdg").c_str(), 1);
    fs::create_directories(folder.path() / "home");
    fs::create_directories(folder.path() / "xdg" / "attune");
    fs::rename(shared, folder.path() / "xdg" / "attune" / "cubins");
    set_log_sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); }, LogLevel::warning);
    CHECK_FALSE(CubinCache().get(launch_of(1)).resources.from_cache);
    CHECK(CubinCache().get(launch_of(1)).resources.from_cache);
    set_log_sink({});
    CHECK(entries(in_home).size() == 1);
  }
  REQUIRE(heard.size() == 1);
  CHECK_THAT(heard[0], ContainsSubstring("xdg/attune/cubins is not used as a cache"));
}

TEST_CASE("a cache that only root can write serves others", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache(folder.path()).get(launch_of(1));
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
  CHECK(CubinCache(folder.path()).get(launch_of(1)).resources.from_cache);
  CHECK(CubinCache(folder.path()).get(launch_of(2)).image.size() > 100);
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
}

TEST_CASE("rebuild replaces an entry", "[nvrtc]") {
  const TemporaryFolder folder;
  CubinCache cache(folder.path());
  cache.get(launch_of(1));
  const fs::path entry = entries(folder.path()).at(0);
  std::ofstream(entry / "marker") << "of the old entry";
  CHECK_FALSE(cache.rebuild(launch_of(1)).resources.from_cache);
  CHECK_FALSE(fs::exists(entry / "marker"));
  CHECK(cache.get(launch_of(1)).resources.from_cache);
}

TEST_CASE("a cache that cannot be written still gives cubins", "[nvrtc]") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  std::ofstream(file) << "in the way";
  CubinCache below_a_file(file / "cache");
  CHECK(below_a_file.get(launch_of(1)).image.size() > 100);
  CubinCache in_proc("/proc/attune");
  CHECK(in_proc.get(launch_of(1)).image.size() > 100);
  CHECK_FALSE(in_proc.get(launch_of(1)).resources.from_cache);
}

TEST_CASE("threads and processes share a cache", "[nvrtc]") {
  const TemporaryFolder folder;
  constexpr int kProcesses = 3, kKernels = 4;
  const auto work = [&] {
    CubinCache cache(folder.path());
    for (int i = 0; i < kKernels; ++i) {
      if (cache.get(launch_of(i)).image.size() < 100) return false;
    }
    return true;
  };
  CubinCache(folder.path()).get(launch_of(kKernels));  // NVRTC is open before the first fork
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work() ? 0 : 1);
    REQUIRE(child > 0);
    children.push_back(child);
  }
  std::thread other([&] { CHECK(work()); });
  CHECK(work());
  other.join();
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(entries(folder.path()).size() == kKernels + 1);
  CHECK(nothing_left_over(folder.path()));
  CubinCache cache(folder.path());
  for (int i = 0; i < kKernels; ++i) CHECK(cache.get(launch_of(i)).resources.from_cache);
}

TEST_CASE("what a killed process left under construction is removed in time", "[nvrtc]") {
  const TemporaryFolder folder;
  const fs::path incoming = folder.path() / ".incoming";
  fs::create_directories(incoming / "old");
  fs::create_directories(incoming / "young");
  fs::last_write_time(incoming / "old", fs::file_time_type::clock::now() - std::chrono::hours(5));
  CubinCache(folder.path()).get(launch_of(1));
  CHECK_FALSE(fs::exists(incoming / "old"));
  CHECK(fs::exists(incoming / "young"));
}

TEST_CASE("the folder of the cache follows the environment", "[nogpu]") {
  const CacheEnvironment environment;
  CHECK(CubinCache::default_folder().parent_path() == fs::temp_directory_path());
  ::setenv("HOME", "/home/somebody", 1);
  CHECK(CubinCache::default_folder() == "/home/somebody/.cache/attune/cubins");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  CHECK(CubinCache::default_folder() == "/caches/attune/cubins");
  ::setenv("ATTUNE_CACHE_DIR", "/mine", 1);
  CHECK(CubinCache::default_folder() == "/mine");
}

}  // namespace cubin_cache_test
