#include "runtime/cuda/cubin_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/runtime/temporary_folder.h"

using namespace attune;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

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
  for (const char* file : {"kernel.cubin", "log.txt", "resources.json"})
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
  SECTION("no description") { fs::remove(entry / "resources.json"); }
  SECTION("a description that is no JSON") { std::ofstream(entry / "resources.json") << "{\"cubin_hash\": "; }
  SECTION("a description of other types") {
    std::ofstream(entry / "resources.json") << "{\"cubin_hash\": 7, \"log_hash\": []}";
  }
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
  const char* names[] = {"ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> kept;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) kept.emplace_back(name, value);
    ::unsetenv(name);
  }
  CHECK(CubinCache::default_folder().parent_path() == fs::temp_directory_path());
  ::setenv("HOME", "/home/somebody", 1);
  CHECK(CubinCache::default_folder() == "/home/somebody/.cache/attune/cubins");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  CHECK(CubinCache::default_folder() == "/caches/attune/cubins");
  ::setenv("ATTUNE_CACHE_DIR", "/mine", 1);
  CHECK(CubinCache::default_folder() == "/mine");
  for (const char* name : names) ::unsetenv(name);
  for (const auto& [name, value] : kept) ::setenv(name.c_str(), value.c_str(), 1);
}
