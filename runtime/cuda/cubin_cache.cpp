#include "runtime/cuda/cubin_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/plan/source_hash.h"
#include "runtime/cuda/compile_log.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// An entry is a folder named by the key:
//   kernel.cubin      what the driver loads
//   log.txt           what the compiler said, template lines named
//   resources.txt     what is needed to judge the entry, a line "name value" each: the key, hashes of both files,
//                     compiler, arch, entry, time of compilation. No JSON: the package's documents allocate when they
//                     are destroyed, which ends a process that has no memory left.
constexpr const char* kCubinFile = "kernel.cubin";
constexpr const char* kLogFile = "log.txt";
constexpr const char* kResourcesFile = "resources.txt";
// Entries under construction, each in a folder of an unpredictable name. What a killed process left is removed after
// an hour.
constexpr const char* kIncomingFolder = ".incoming";
constexpr auto kAbandonedAfter = std::chrono::hours(1);
constexpr std::size_t kMostCubinBytes = std::size_t{256} << 20, kMostTextBytes = std::size_t{64} << 20;

std::string hexadecimal(XXH128_hash_t hash) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string hash_of(const std::string& text) { return hexadecimal(XXH3_128bits(text.data(), text.size())); }

std::string key_of(const KernelLaunch& launch) {
  std::string text(source_body(launch.source));
  for (const std::string& flag : nvrtc_flags(launch)) text += '\0' + flag;
  text += '\0' + nvrtc_identity() + '\0' + launch.arch;
  return hash_of(text);
}

// What follows a name at the beginning of a line; empty if no line has it.
std::string_view value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) return line.substr(name.size() + 1);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

// A stored entry, if it is whole and the key's: a folder's name can be changed, so that the key stands inside, too, and
// cubin and log have the hashes that were written beside it. Nothing, and the reason in *why_not, otherwise.
std::optional<CompiledText> read_entry(const PrivateFolder& entry, const std::string& key, const KernelLaunch& launch,
                                       std::string& why_not) {
  const auto described = entry.read(kResourcesFile, kMostTextBytes, &why_not);
  if (!described) return std::nullopt;
  if (value_of(*described, "key") != key) {
    why_not = "it does not say that it is of this kernel";
    return std::nullopt;
  }
  auto image = entry.read(kCubinFile, kMostCubinBytes, &why_not);
  if (!image) return std::nullopt;
  const auto log = entry.read(kLogFile, kMostTextBytes, &why_not);
  if (!log) return std::nullopt;
  if (value_of(*described, "cubin_hash") != hash_of(*image) || value_of(*described, "log_hash") != hash_of(*log)) {
    why_not = "its files do not have the hashes that were written beside them";
    return std::nullopt;
  }
  CompiledText compiled;
  compiled.image = std::move(*image);
  read_compile_log(*log, compiled.resources);
  compiled.resources.shared_bytes = launch.shared_bytes;
  const std::string_view ms = value_of(*described, "compile_ms");
  std::from_chars(ms.data(), ms.data() + ms.size(), compiled.resources.compile_ms);
  compiled.resources.from_cache = true;
  return compiled;
}

std::string describe(const std::string& key, const KernelLaunch& launch, const CompiledText& compiled) {
  const KernelResources& resources = compiled.resources;
  std::string text;
  const auto say = [&](const char* name, const std::string& value) { text += std::string(name) + " " + value + "\n"; };
  say("key", key);
  say("entry", launch.entry);
  say("arch", launch.arch);
  say("compiler", nvrtc_identity());
  say("cubin_hash", hash_of(compiled.image));
  say("log_hash", hash_of(resources.log));
  say("compile_ms", std::to_string(resources.compile_ms));
  say("registers", std::to_string(resources.registers));
  say("spill_bytes", std::to_string(resources.spill_bytes));
  say("stack_bytes", std::to_string(resources.stack_bytes));
  return text;
}

// Puts a whole entry in place, or leaves things as they are: a cache that cannot be written is no failure. Where
// another process was first, its entry stays, unless `replace`.
void store_entry(const PrivateFolder& cache, const std::string& key, const KernelLaunch& launch,
                 const CompiledText& compiled, bool replace) {
  if (!cache.writable()) return warn_once(cache.complaint());
  const PrivateFolder incoming = cache.subfolder(kIncomingFolder);
  if (!incoming.writable()) return warn_once(incoming.complaint());
  incoming.remove_older("", kAbandonedAfter);
  const PrivateFolder fresh = incoming.make_temporary("");
  if (!fresh.writable()) return warn_once(fresh.complaint());
  std::string why_not;
  const bool written = fresh.write(kCubinFile, compiled.image, &why_not) &&
                       fresh.write(kLogFile, compiled.resources.log, &why_not) &&
                       fresh.write(kResourcesFile, describe(key, launch, compiled), &why_not) && fresh.sync();
  if (written) {
    const std::string old = fresh.name() + "-old";
    if (replace) cache.move(key, incoming, old);  // out of the way; no failure if it was not there
    if (!incoming.move(fresh.name(), cache, key)) incoming.remove(fresh.name());
    cache.sync();
    incoming.remove(old);
  } else {
    incoming.remove(fresh.name());
    warn_once("a cubin cannot be kept in " + cache.path().string() + ": " + why_not);
  }
}

}  // namespace

fs::path CubinCache::default_folder() { return cache_folders("cubins", {}).front().path; }

CubinCache::CubinCache() : folders_(cache_folders("cubins", {})) {
  // A folder that the user names is used or none.
  if (folders_.front().named) folders_.resize(1);
}

CubinCache::CubinCache(fs::path folder) : folders_{{std::move(folder), true}} {}

std::optional<PrivateFolder> CubinCache::open() const {
  for (const CacheFolder& candidate : folders_) {
    PrivateFolder folder(candidate.path);
    if (folder.usable()) return folder;
    if (candidate.named && folder.state() == PrivateFolder::State::unsafe) {
      throw Error(ErrorCode::io, folder.complaint());
    }
    warn_once(folder.complaint());
  }
  return std::nullopt;
}

CompiledText CubinCache::get(const KernelLaunch& launch) {
  const std::string key = key_of(launch);
  const std::optional<PrivateFolder> cache = open();
  bool damaged = false;
  if (cache && cache->has(key)) {
    const PrivateFolder entry = cache->existing(key);
    std::string why_not = entry.complaint();
    if (entry.usable()) {
      if (auto stored = read_entry(entry, key, launch, why_not)) return std::move(*stored);
    }
    damaged = true;
    log(LogLevel::info, "the cubin in " + (cache->path() / key).string() + " is compiled again: " + why_not);
  }
  CompiledText compiled = compile_with_nvrtc(launch);
  if (cache) store_entry(*cache, key, launch, compiled, damaged);
  return compiled;
}

bool CubinCache::holds(const KernelLaunch& launch) const {
  const std::string key = key_of(launch);
  const std::optional<PrivateFolder> cache = open();
  if (!cache || !cache->has(key)) return false;
  const PrivateFolder entry = cache->existing(key);
  std::string why_not;
  return entry.usable() && read_entry(entry, key, launch, why_not).has_value();
}

CompiledText CubinCache::rebuild(const KernelLaunch& launch) {
  CompiledText compiled = compile_with_nvrtc(launch);
  if (const std::optional<PrivateFolder> cache = open()) store_entry(*cache, key_of(launch), launch, compiled, true);
  return compiled;
}

}  // namespace attune
