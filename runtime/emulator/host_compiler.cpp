#include "runtime/emulator/host_compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/plan/source_hash.h"
#include "runtime/system/child_program.h"
#include "runtime/system/private_folder.h"
#include "runtime/system/scratch_folder.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// No contraction: the same bits whether or not the host has fused multiply-add. Hidden: kernels must not see each
// other's functions.
const std::vector<std::string> kFlags = {
    "-std=c++20",          "-ffp-contract=off",           "-fno-math-errno", "-fPIC", "-fno-exceptions",
    "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-shared",         "-w"};

// Unless a word of $ATTUNE_HOST_COMPILER says how far to optimize. -O2 compiles a fifth longer and runs no faster: most
// of the time goes to the emulator itself.
constexpr const char* kOptimization = "-O1";

// A stored object is followed by this mark and the hash, in hexadecimal digits, of its key and its bytes.
constexpr std::string_view kMark = "attune object 1\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kMostObjectBytes = std::size_t{256} << 20, kMostLogBytes = std::size_t{1} << 20;

constexpr const char* kSourceFile = "kernel.cpp";
constexpr const char* kObjectFile = "kernel.so";
constexpr const char* kScratchPrefix = ".building-";
constexpr auto kAbandonedAfter = std::chrono::hours(1);

// $ATTUNE_HOST_COMPILER may hold arguments: "ccache g++".
std::vector<std::string> compiler_words() {
  const char* named = std::getenv("ATTUNE_HOST_COMPILER");
  std::istringstream words(named != nullptr ? named : "");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  if (command.empty()) command.emplace_back("c++");
  return command;
}

std::vector<std::string> flags_beside(const std::vector<std::string>& words) {
  std::vector<std::string> flags = kFlags;
  if (std::none_of(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("-O"); }))
    flags.emplace_back(kOptimization);
  return flags;
}

[[noreturn]] void refuse_compiler(const std::vector<std::string>& words) {
  throw Error(
      ErrorCode::unsupported,
      fmt::format("the emulator needs a C++20 host compiler, and '{}' cannot be run; install one (apt install g++) or "
                  "set ATTUNE_HOST_COMPILER to one",
                  fmt::join(words, " ")));
}

ChildProgramResult run_compiler(const std::vector<std::string>& words, const std::vector<std::string>& arguments) {
  const std::optional<fs::path> program = find_program(words.front());
  if (!program) refuse_compiler(words);
  std::vector<std::string> all(words.begin() + 1, words.end());
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(*program, all, ChildOutput::both, kMostLogBytes);
}

std::string hash_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string sealed(const std::string& key, const std::string& object) {
  return object + std::string(kMark) + hash_of(key + object);
}

// The object of a file that is whole and the key's.
std::optional<std::string> opened(const std::string& key, std::string file) {
  if (file.size() < kMark.size() + kHashDigits) return std::nullopt;
  const std::string hash = file.substr(file.size() - kHashDigits);
  file.resize(file.size() - kHashDigits);
  if (!file.ends_with(kMark)) return std::nullopt;
  file.resize(file.size() - kMark.size());
  if (hash_of(key + file) != hash) return std::nullopt;
  return file;
}

// The first folder that nobody else can have written to and that can be written. Nothing if there is none: then
// nothing is kept.
std::optional<PrivateFolder> cache_folder() {
  for (const CacheFolder& candidate : cache_folders("emulator", "emulator")) {
    PrivateFolder folder(candidate.path);
    if (folder.writable()) return folder;
    if (candidate.named && folder.state() == PrivateFolder::State::unsafe) {
      throw Error(ErrorCode::io, folder.complaint());
    }
    warn_once(folder.complaint());
  }
  return std::nullopt;
}

// A folder for the files of one compilation, which goes away with them.
class Scratch {
 public:
  explicit Scratch(const std::optional<PrivateFolder>& cache)
      : parent_(cache ? &*cache : nullptr), folder_(cache ? cache->make_temporary(kScratchPrefix) : temporary()) {
    if (!folder_.writable()) {
      throw Error(ErrorCode::io,
                  "no folder for the emulator's compiled kernels can be written: " + folder_.complaint());
    }
  }
  ~Scratch() {
    if (parent_ != nullptr) parent_->remove(folder_.name());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const PrivateFolder& folder() const { return folder_; }

 private:
  PrivateFolder temporary() {
    try {
      temporary_.emplace(temporary_files(), "attune-compile-");
    } catch (const fs::filesystem_error& error) {
      throw Error(ErrorCode::io,
                  fmt::format("no folder for the emulator's compiled kernels can be written: {}", error.what()));
    }
    return PrivateFolder(temporary_->path());
  }

  const PrivateFolder* parent_;
  std::optional<ScratchFolder> temporary_;  // where there is no cache
  PrivateFolder folder_;
};

HostObject compile_in(const PrivateFolder& folder, const std::vector<std::string>& words, const std::string& source) {
  std::string why_not;
  if (!folder.write(kSourceFile, source, &why_not)) {
    throw Error(ErrorCode::io, fmt::format("cannot write {}: {}; free some space or set ATTUNE_CACHE_DIR",
                                           (folder.path() / kSourceFile).string(), why_not));
  }
  std::vector<std::string> arguments = flags_beside(words);
  const std::string source_path = (folder.path() / kSourceFile).string();
  const std::string object_path = (folder.path() / kObjectFile).string();
  arguments.insert(arguments.end(), {source_path, "-o", object_path, "-lm"});
  HostObject object;
  const auto begin = std::chrono::steady_clock::now();
  ChildProgramResult result = run_compiler(words, arguments);
  object.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  object.log = std::move(result.output);
  if (result.status != 0) {
    throw Error(ErrorCode::compile_failed, fmt::format("{} refused a kernel for the emulator (status {}):\n{}",
                                                       words.front(), result.status, object.log));
  }
  folder.claim(kObjectFile);
  auto bytes = folder.read(kObjectFile, kMostObjectBytes, &why_not);
  if (!bytes) {
    throw Error(ErrorCode::io,
                fmt::format("cannot read {}, which {} was to write: {}", object_path, words.front(), why_not));
  }
  object.bytes = std::move(*bytes);
  return object;
}

}  // namespace

std::string host_compiler_version() {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::string> known;
  const std::vector<std::string> words = compiler_words();
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(words); found != known.end()) return found->second;
  const ChildProgramResult result = run_compiler(words, {"--version"});
  if (result.status != 0) refuse_compiler(words);
  return known[words] = result.output.substr(0, result.output.find('\n'));
}

HostObject compile_for_host(const std::string& source, bool rebuild) {
  const std::vector<std::string> words = compiler_words();
  const std::string key = hash_of(fmt::format("{}\n{}\n{}\n{}", host_compiler_version(), fmt::join(words, " "),
                                              fmt::join(flags_beside(words), " "), source_body(source)));
  const std::string name = key + ".so";
  const std::optional<PrivateFolder> cache = cache_folder();
  if (cache && !rebuild) {
    if (auto file = cache->read(name, kMostObjectBytes)) {
      if (auto bytes = opened(key, std::move(*file))) return {std::move(*bytes), {}, 0, true};
    }
  }
  if (cache) cache->remove_older(".", kAbandonedAfter);
  const Scratch scratch(cache);
  HostObject object = compile_in(scratch.folder(), words, source);
  std::string why_not;
  if (cache && !cache->write(name, sealed(key, object.bytes), &why_not)) {
    warn_once(fmt::format("a compiled kernel cannot be kept in {}: {}", cache->path().string(), why_not));
  }
  return object;
}

}  // namespace attune
