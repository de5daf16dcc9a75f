// Who may put code into this process: the cache of the emulator's compiled kernels under attack.
#include "runtime/emulator/host_compiler.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attune/log.h"
#include "generator/error.h"
#include "runtime/emulator/loaded_object.h"
#include "tests/catch.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::ScopedVariable;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kSomebodyElse = 54321;
constexpr const char* kSource = "extern \"C\" __attribute__((visibility(\"default\"))) int answer() { return 42; }\n";

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

int answer_of(const HostObject& object) {
  const LoadedObject loaded(object.bytes);
  INFO(loaded.why_not());
  const auto answer = reinterpret_cast<int (*)()>(loaded.find("answer"));
  REQUIRE(answer != nullptr);
  return answer();
}

// The one file that a cache keeps.
fs::path only_file(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  REQUIRE(found.size() == 1);
  return found[0];
}

// A compiler that is quick: it copies `object`, whatever it is given.
std::string copying_compiler(const fs::path& path, const fs::path& object) {
  std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = --version ] && { echo copies; exit 0; }\n"
                         "while [ \"$1\" != -o ]; do shift; done\ncp '"
                      << object.string() << "' \"$2\"\n";
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

struct Heard {
  std::vector<std::string> texts;
  Heard() {
    set_log_sink([this](LogLevel, std::string_view text) { texts.emplace_back(text); }, LogLevel::warning);
  }
  ~Heard() { set_log_sink({}); }
  bool say(const std::string& words) const {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(words) != std::string::npos; });
  }
};

}  // namespace

TEST_CASE("no flipped bit of a stored kernel and no cut runs: it is compiled again", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "cache");
  const HostObject good = compile_for_host(kSource);
  REQUIRE(answer_of(good) == 42);
  overwrite(folder.path() / "good.so", good.bytes);
  const ScopedVariable compiler("ATTUNE_HOST_COMPILER",
                                copying_compiler(folder.path() / "compiler", folder.path() / "good.so"));
  fs::remove_all(folder.path() / "cache");
  REQUIRE_FALSE(compile_for_host(kSource).from_cache);
  REQUIRE(compile_for_host(kSource).from_cache);
  const fs::path file = only_file(folder.path() / "cache" / "emulator");
  const std::string stored = contents(file);
  REQUIRE(stored.size() > good.bytes.size());

  std::mt19937_64 random(20251122);
  const auto rebuilt = [&](const std::string& damaged) {
    overwrite(file, damaged);
    const HostObject object = compile_for_host(kSource);
    return !object.from_cache && object.bytes == good.bytes;
  };
  int wrong = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = stored;
    // Half of them where a loader looks first and in the hash.
    const std::size_t region = i % 4 == 0 ? 512 : i % 4 == 1 ? 48 : stored.size();
    const std::size_t from = i % 4 == 1 ? stored.size() - region : 0;
    const std::size_t at = from + random() % region;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    if (!rebuilt(damaged)) ++wrong;
  }
  CHECK(wrong == 0);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{47}, stored.size() / 2, good.bytes.size(), stored.size() - 1}) {
    INFO(size);
    CHECK(rebuilt(stored.substr(0, size)));
  }
  CHECK(rebuilt(stored + "x"));
  CHECK(compile_for_host(kSource).from_cache);

  // A whole file of another kernel.
  const HostObject other = compile_for_host("// another\n");
  REQUIRE_FALSE(other.from_cache);
  for (const auto& entry : fs::directory_iterator(file.parent_path())) {
    if (entry.path() != file) CHECK(rebuilt(contents(entry.path())));
  }
}

TEST_CASE("the words of the host compiler are part of the key", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "cache");
  const std::string source = "extern \"C\" __attribute__((visibility(\"default\"))) int answer() { return ANSWER; }\n";
  for (const int answer : {1, 2}) {
    const ScopedVariable compiler("ATTUNE_HOST_COMPILER", "c++ -DANSWER=" + std::to_string(answer));
    const HostObject object = compile_for_host(source);
    CHECK_FALSE(object.from_cache);
    CHECK(answer_of(object) == answer);
    // The first line, which says what a kernel is for, is not.
    CHECK(compile_for_host("// attune forward · source 0\n" + source).from_cache);
  }
}

TEST_CASE("a word of the host compiler says how far it optimizes", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "cache");
  const std::string source =
      "#ifdef __OPTIMIZE__\n#define ANSWER 1\n#else\n#define ANSWER 0\n#endif\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) int answer() { return ANSWER; }\n";
  for (const auto& [compiler, answer] : {std::pair("c++", 1), {"c++ -O0", 0}, {"c++ -Og", 1}}) {
    INFO(compiler);
    const ScopedVariable variable("ATTUNE_HOST_COMPILER", compiler);
    CHECK(answer_of(compile_for_host(source)) == answer);
  }
}

TEST_CASE("objects of the same name at different times are not taken for each other", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "cache");
  const auto object_of = [](int answer) {
    return compile_for_host("extern \"C\" __attribute__((visibility(\"default\"))) int answer() { return " +
                            std::to_string(answer) + "; }\n");
  };
  const HostObject first = object_of(1), second = object_of(2);
  const LoadedObject kept(first.bytes);
  CHECK(answer_of(second) == 2);
  CHECK(answer_of(first) == 1);
  CHECK(answer_of(second) == 2);
  CHECK(reinterpret_cast<int (*)()>(kept.find("answer"))() == 1);
  CHECK_FALSE(LoadedObject("no object").why_not().empty());
  CHECK(LoadedObject("").find("answer") == nullptr);
}

TEST_CASE("a FIFO, link or folder in the place of a stored kernel is replaced, and nobody waits", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "cache");
  overwrite(folder.path() / "good.so", compile_for_host(kSource).bytes);
  const ScopedVariable compiler("ATTUNE_HOST_COMPILER",
                                copying_compiler(folder.path() / "compiler", folder.path() / "good.so"));
  fs::remove_all(folder.path() / "cache");
  compile_for_host(kSource);
  const fs::path file = only_file(folder.path() / "cache" / "emulator");
  const std::string stored = contents(file);
  overwrite(folder.path() / "elsewhere.so", stored);
  const auto replaced = [&] {
    CHECK_FALSE(compile_for_host(kSource).from_cache);
    CHECK(fs::is_regular_file(fs::symlink_status(file)));
    CHECK(compile_for_host(kSource).from_cache);
    fs::remove(file);
  };
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  replaced();
  fs::create_symlink(folder.path() / "elsewhere.so", file);
  replaced();
  CHECK(contents(folder.path() / "elsewhere.so") == stored);
  REQUIRE(::mknod(file.c_str(), S_IFSOCK | 0600, 0) == 0);
  replaced();
  compile_for_host(kSource);
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  replaced();

  fs::create_directory(file);  // which a file cannot replace: then nothing is kept
  const Heard heard;
  CHECK_FALSE(compile_for_host(kSource).from_cache);
  CHECK(heard.say("a compiled kernel cannot be kept in " + file.parent_path().string() + ": Is a directory"));
}

TEST_CASE("an object that another user could plant is never run", "[emulator]") {
  const TemporaryFolder folder;
  // The attack of old: whoever owns the folder puts an object that runs code when it is loaded under the key.
  const fs::path marker = folder.path() / "planted code ran";
  const std::string planting = "#include <fcntl.h>\nnamespace { const int planted = ::open(\"" + marker.string() +
                               "\", O_CREAT | O_WRONLY, 0600); }\n" + kSource;
  fs::create_directory(folder.path() / "attack");
  std::string planted, name;
  {
    const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path() / "attack");
    planted = compile_for_host(planting).bytes;
    compile_for_host(kSource);
    for (const auto& entry : fs::directory_iterator(folder.path() / "attack" / "emulator")) {
      if (contents(entry.path()).compare(0, planted.size(), planted) != 0) name = entry.path().filename();
    }
  }
  const auto plant = [&](const fs::path& cache) {
    fs::create_directories(cache);
    overwrite(cache / name, planted);
    REQUIRE(::chmod((cache / name).c_str(), 0644) == 0);
  };
  const auto ran = [&](const HostObject& object) { return answer_of(object) != 42 || fs::exists(marker); };

  SECTION("a folder that the user names and others can write to") {
    const fs::path cache = folder.path() / "shared" / "emulator";
    plant(cache);
    REQUIRE(::chmod(cache.c_str(), 0777) == 0);
    const ScopedVariable named("ATTUNE_CACHE_DIR", folder.path() / "shared");
    CHECK_THROWS_WITH(compile_for_host(kSource), ContainsSubstring("others than its owner can write to it (mode 777)"));
    REQUIRE(::chmod(cache.c_str(), 0700) == 0);
    CHECK_FALSE(ran(compile_for_host(kSource)));  // what was planted carries no hash of its key
  }
  SECTION("a folder under one that everybody can write to") {
    plant(folder.path() / "shared" / "emulator");
    REQUIRE(::chmod((folder.path() / "shared").c_str(), 0777) == 0);
    const ScopedVariable named("ATTUNE_CACHE_DIR", folder.path() / "shared");
    CHECK_THROWS_WITH(compile_for_host(kSource), ContainsSubstring("can be written by everybody"));
  }
  SECTION("the folder in /tmp, made by somebody else first") {
    const fs::path temporary = folder.path() / "tmp";
    const fs::path cache = temporary / ("attune-emulator-" + std::to_string(::geteuid()));
    plant(cache);
    REQUIRE(::chmod(temporary.c_str(), 01777) == 0);
    if (::geteuid() == 0) {
      REQUIRE(::chown(cache.c_str(), kSomebodyElse, kSomebodyElse) == 0);
    } else {
      REQUIRE(::chmod(cache.c_str(), 0777) == 0);
    }
    const ScopedVariable named("ATTUNE_CACHE_DIR", ""), xdg("XDG_CACHE_HOME", ""), home("HOME", ""),
        place("TMPDIR", temporary);
    const Heard heard;
    const HostObject object = compile_for_host(kSource);
    CHECK_FALSE(object.from_cache);
    CHECK_FALSE(ran(object));
    CHECK(heard.say(cache.string() + " is not used as a cache"));
    CHECK(fs::is_regular_file(cache / name));
    CHECK(std::distance(fs::directory_iterator(temporary), fs::directory_iterator()) == 1);  // nothing is left
  }
  CHECK_FALSE(fs::exists(marker));
}

TEST_CASE("what a killed compilation left in the cache goes away in time", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path());
  const fs::path kernels = folder.path() / "emulator";
  fs::create_directories(kernels / ".building-old");
  fs::create_directories(kernels / ".building-young");
  fs::last_write_time(kernels / ".building-old", fs::file_time_type::clock::now() - std::chrono::hours(5));
  compile_for_host(kSource);
  CHECK_FALSE(fs::exists(kernels / ".building-old"));
  CHECK(fs::exists(kernels / ".building-young"));
}
