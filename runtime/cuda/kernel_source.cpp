#include "runtime/cuda/kernel_source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "generator/lazy_value.h"
#include "generator/plan/source_hash.h"
#include "runtime/system/state_mutex.h"

namespace attune {
namespace {

struct ProcessSource {
  StateMutex mutex;
  std::shared_ptr<const KernelSource> source;
};

// Never destroyed: other threads may still compile when the process ends.
ProcessSource& process_source() {
  static constinit LazyValue<ProcessSource> made;
  return made.get();
}

}  // namespace

std::string kernel_key(const KernelLaunch& launch) {
  std::string text(source_body(launch.source));
  for (const std::string& flag : nvrtc_flags(launch)) text += '\0' + flag;
  text += '\0' + launch.arch;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64), static_cast<std::uint64_t>(hash.low64));
}

std::shared_ptr<const KernelSource> kernel_source() {
  ProcessSource& process = process_source();
  const std::lock_guard lock(process.mutex);
  return process.source;
}

void set_kernel_source(std::shared_ptr<const KernelSource> source) {
  ProcessSource& process = process_source();
  const std::lock_guard lock(process.mutex);
  process.source.swap(source);
}

}  // namespace attune
