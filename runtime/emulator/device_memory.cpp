#include "runtime/emulator/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "generator/error.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr std::uint8_t kGuard = 0xa5;
constexpr std::size_t kFreedRemembered = 64;
constexpr std::size_t kPageBytes = 4096;

bool guard_is_whole(const std::byte* band) {
  return std::all_of(band, band + DeviceMemory::kGuardBytes, [](std::byte b) { return b == std::byte{kGuard}; });
}

}  // namespace

const MemoryMap::Range* MemoryMap::find(std::uint64_t address) const {
  auto after = std::upper_bound(live_.begin(), live_.end(), address,
                                [](std::uint64_t value, const Range& range) { return value < range.begin; });
  if (after == live_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return address < range.end ? &range : nullptr;
}

std::string MemoryMap::describe(std::uint64_t address) const {
  for (const Range& range : freed_) {
    if (address >= range.begin && address < range.end) {
      return fmt::format("inside {} bytes at {:#x} that were freed", range.end - range.begin, range.begin);
    }
  }
  const Range* nearest = nullptr;
  std::uint64_t nearest_distance = ~std::uint64_t{0};
  for (const Range& range : live_) {
    const std::uint64_t distance = address < range.begin  ? range.begin - address
                                   : address >= range.end ? address - range.end
                                                          : 0;
    if (distance < nearest_distance) {
      nearest = &range;
      nearest_distance = distance;
    }
  }
  if (!nearest) return "and nothing is allocated";
  const std::uint64_t bytes = nearest->end - nearest->begin;
  if (address < nearest->begin) {
    return fmt::format("{} bytes before the nearest allocation, {} bytes at {:#x}", nearest_distance, bytes,
                       nearest->begin);
  }
  return fmt::format("{} bytes past the end of the nearest allocation, {} bytes at {:#x}", nearest_distance, bytes,
                     nearest->begin);
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [pointer, block] : blocks_) release(block);
}

std::size_t DeviceMemory::mapped_bytes(std::size_t bytes) { return round_up(bytes, kPageBytes); }

std::uint64_t DeviceMemory::allocate(std::size_t bytes) {
  Block block;
  block.bytes = bytes;
  block.sparse = bytes >= kSparseBytes;
  std::uint64_t pointer = 0;
  if (block.sparse) {
    void* base =
        mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) block.base = static_cast<std::byte*>(base);
    pointer = reinterpret_cast<std::uint64_t>(block.base);
  } else {
    const std::size_t total = round_up(kGuardBytes + bytes + kGuardBytes, kAlignment);
    block.base = static_cast<std::byte*>(std::aligned_alloc(kAlignment, total));
    if (block.base) {
      std::memset(block.base, kGuard, kGuardBytes);
      std::memset(block.base + kGuardBytes, kPoison, bytes);
      std::memset(block.base + kGuardBytes + bytes, kGuard, kGuardBytes);
      pointer = reinterpret_cast<std::uint64_t>(block.base + kGuardBytes);
    }
  }
  if (!block.base) {
    throw Error(ErrorCode::driver,
                fmt::format("out of memory: the emulator cannot allocate {} bytes on the host, {} are free", bytes,
                            free_bytes()));
  }
  const std::lock_guard lock(mutex_);
  blocks_.emplace(pointer, block);
  std::erase_if(freed_,
                [&](const MemoryMap::Range& range) { return range.begin < pointer + bytes && pointer < range.end; });
  map_.reset();
  return pointer;
}

void DeviceMemory::free(std::uint64_t pointer) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end()) {
    complaint_ = fmt::format("free of {:#x}, which is not allocated (freed twice, or never allocated here)", pointer);
    return;
  }
  const Block block = found->second;
  if (!block.sparse && !(guard_is_whole(block.base) && guard_is_whole(block.base + kGuardBytes + block.bytes))) {
    complaint_ = fmt::format("the memory {} the {} bytes at {:#x} was overwritten before they were freed",
                             guard_is_whole(block.base) ? "after" : "before", block.bytes, pointer);
  }
  release(block);
  blocks_.erase(found);
  freed_.push_back({pointer, pointer + block.bytes});
  if (freed_.size() > kFreedRemembered) freed_.pop_front();
  map_.reset();
}

void DeviceMemory::release(const Block& block) noexcept {
  if (block.sparse) {
    munmap(block.base, mapped_bytes(block.bytes));
  } else {
    std::free(block.base);
  }
}

std::string DeviceMemory::take_complaint() {
  const std::lock_guard lock(mutex_);
  return std::exchange(complaint_, {});
}

void DeviceMemory::check(const char* what, std::uint64_t address, std::size_t bytes) const {
  if (bytes == 0) return;
  const auto known = map();
  const MemoryMap::Range* range = known->find(address);
  if (!range) throw Error(ErrorCode::emulator, fmt::format("{} at {:#x}: {}", what, address, known->describe(address)));
  if (bytes > range->end - address) {
    throw Error(ErrorCode::emulator,
                fmt::format("{} of {} bytes at {:#x} goes {} bytes past the end of the {} bytes at {:#x}", what, bytes,
                            address, bytes - (range->end - address), range->end - range->begin, range->begin));
  }
}

std::shared_ptr<const MemoryMap> DeviceMemory::map() const {
  const std::lock_guard lock(mutex_);
  if (!map_) {
    std::vector<MemoryMap::Range> live;
    live.reserve(blocks_.size());
    for (const auto& [pointer, block] : blocks_) live.push_back({pointer, pointer + block.bytes});
    map_ = std::make_shared<MemoryMap>(std::move(live), std::vector<MemoryMap::Range>(freed_.begin(), freed_.end()));
  }
  return map_;
}

std::size_t DeviceMemory::free_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t kibibytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return std::size_t{1} << 30;
}

}  // namespace attune
