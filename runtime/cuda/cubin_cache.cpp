#include "runtime/cuda/cubin_cache.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "generator/error.h"
#include "runtime/cuda/compile_log.h"
#include "runtime/json_text.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// An entry is a folder named by the key:
//   kernel.cubin      what the driver loads
//   log.txt           what the compiler said, template lines named
//   resources.json    what is needed to judge the entry: hashes of both, compiler, arch, entry, time of compilation
constexpr const char* kCubinFile = "kernel.cubin";
constexpr const char* kLogFile = "log.txt";
constexpr const char* kResourcesFile = "resources.json";
// Entries under construction, one folder per process and count. What a killed process left is removed after an hour.
constexpr const char* kIncomingFolder = ".incoming";
constexpr auto kAbandonedAfter = std::chrono::hours(1);

std::string hexadecimal(XXH128_hash_t hash) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string hash_of(const std::string& text) { return hexadecimal(XXH3_128bits(text.data(), text.size())); }

std::string key_of(const KernelLaunch& launch) {
  std::string text = launch.source;
  for (const std::string& flag : nvrtc_flags(launch)) text += '\0' + flag;
  text += '\0' + nvrtc_identity() + '\0' + launch.arch;
  return hash_of(text);
}

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return std::nullopt;
  return text;
}

bool sync_path(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return synced;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return !file.fail() && sync_path(path, O_RDONLY);
}

// A stored entry, if it is whole: cubin and log have the hashes that were written beside them.
std::optional<CompiledText> read_entry(const fs::path& folder, const KernelLaunch& launch) {
  const auto described = read_file(folder / kResourcesFile);
  if (!described) return std::nullopt;
  nlohmann::json json;
  try {
    json = parse_json(*described, kResourcesFile);
  } catch (const Error&) {
    return std::nullopt;
  }
  auto image = read_file(folder / kCubinFile);
  auto log = read_file(folder / kLogFile);
  if (!image || !log || !json.is_object()) return std::nullopt;
  const auto says = [&](const char* name, const std::string& hash) {
    return json.contains(name) && json[name].is_string() && json[name] == hash;
  };
  if (!says("cubin_hash", hash_of(*image)) || !says("log_hash", hash_of(*log))) return std::nullopt;
  CompiledText compiled;
  compiled.image = std::move(*image);
  read_compile_log(*log, compiled.resources);
  compiled.resources.shared_bytes = launch.shared_bytes;
  if (const auto ms = json.find("compile_ms"); ms != json.end() && ms->is_number()) compiled.resources.compile_ms = *ms;
  compiled.resources.from_cache = true;
  return compiled;
}

std::string describe(const KernelLaunch& launch, const CompiledText& compiled) {
  const KernelResources& resources = compiled.resources;
  return nlohmann::json{{"entry", launch.entry},
                        {"arch", launch.arch},
                        {"compiler", nvrtc_identity()},
                        {"cubin_hash", hash_of(compiled.image)},
                        {"log_hash", hash_of(resources.log)},
                        {"compile_ms", resources.compile_ms},
                        {"registers", resources.registers},
                        {"spill_bytes", resources.spill_bytes},
                        {"stack_bytes", resources.stack_bytes},
                        {"advisories", resources.advisories}}
             .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

void remove_abandoned(const fs::path& incoming) {
  std::error_code error;
  const auto limit = fs::file_time_type::clock::now() - kAbandonedAfter;
  for (fs::directory_iterator entry(incoming, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    if (fs::last_write_time(entry->path(), gone) < limit && !gone) fs::remove_all(entry->path(), gone);
  }
}

// Puts a whole entry in place, or leaves things as they are: a cache that cannot be written is no failure. Where
// another process was first, its entry stays, unless `replace`.
void store_entry(const fs::path& cache, const std::string& key, const KernelLaunch& launch,
                 const CompiledText& compiled, bool replace) {
  static std::atomic<unsigned> count{0};
  const fs::path incoming = cache / kIncomingFolder;
  const std::string name = key + "-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  const fs::path fresh = incoming / name, old = incoming / (name + "-old"), final = cache / key;
  std::error_code error;
  fs::create_directories(fresh, error);
  if (error) return;
  remove_abandoned(incoming);
  const bool written =
      write_file(fresh / kCubinFile, compiled.image) && write_file(fresh / kLogFile, compiled.resources.log) &&
      write_file(fresh / kResourcesFile, describe(launch, compiled)) && sync_path(fresh, O_RDONLY | O_DIRECTORY);
  if (written) {
    if (replace) fs::rename(final, old, error);  // out of the way; no error if it was not there
    fs::rename(fresh, final, error);
    if (!error) sync_path(cache, O_RDONLY | O_DIRECTORY);
  }
  fs::remove_all(fresh, error);
  fs::remove_all(old, error);
}

}  // namespace

fs::path CubinCache::default_folder() {
  const auto set = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : nullptr;
  };
  if (const char* folder = set("ATTUNE_CACHE_DIR")) return folder;
  if (const char* folder = set("XDG_CACHE_HOME")) return fs::path(folder) / "attune" / "cubins";
  if (const char* home = set("HOME")) return fs::path(home) / ".cache" / "attune" / "cubins";
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  // Named by the user, so that one user never loads what another wrote.
  return temporary / ("attune-cubins-" + std::to_string(::getuid()));
}

CubinCache::CubinCache(fs::path folder) : folder_(std::move(folder)) {}

CompiledText CubinCache::get(const KernelLaunch& launch) {
  const std::string key = key_of(launch);
  const fs::path entry = folder_ / key;
  if (auto stored = read_entry(entry, launch)) return std::move(*stored);
  std::error_code error;
  const bool damaged = fs::exists(entry, error);
  CompiledText compiled = compile_with_nvrtc(launch);
  store_entry(folder_, key, launch, compiled, damaged);
  return compiled;
}

CompiledText CubinCache::rebuild(const KernelLaunch& launch) {
  CompiledText compiled = compile_with_nvrtc(launch);
  store_entry(folder_, key_of(launch), launch, compiled, true);
  return compiled;
}

}  // namespace attune
