#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace attune {

/// What memory holds before anything is written: repeated, it is NaN in fp16, bf16, fp32 and fp64.
constexpr std::uint8_t kPoison = 0xff;

/// What was allocated when a launch began: the memory that its kernel may touch. Immutable.
class MemoryMap {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  MemoryMap(std::vector<Range> live, std::vector<Range> freed) : live_(std::move(live)), freed_(std::move(freed)) {}

  /// The live range that holds the address, or nullptr.
  const Range* find(std::uint64_t address) const;
  /// Where an address that no range holds lies, for people: "6 bytes past the end of the 4096 bytes at 0x7f…".
  std::string describe(std::uint64_t address) const;

 private:
  std::vector<Range> live_;  // ordered by address
  std::vector<Range> freed_;
};

/// The memory of an emulated device: host memory, each allocation between two guard bands and poisoned with kPoison.
/// Allocations of kSparseBytes or more are sparse zero pages instead, so that a test may use offsets beyond 2^31 on a
/// small machine. Thread-safe.
class DeviceMemory {
 public:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::size_t kSparseBytes = std::size_t{256} << 20;

  ~DeviceMemory();

  /// Throws Error(driver) that names the bytes asked for and those free.
  std::uint64_t allocate(std::size_t bytes);
  /// Remembers a guard band that was overwritten, or an address that was never allocated, for take_complaint().
  void free(std::uint64_t pointer) noexcept;
  /// What free() found since the last call; empty if nothing.
  std::string take_complaint();

  /// Throws Error(emulator) unless [address, address + bytes) lies inside one allocation; `what` begins the sentence.
  void check(const char* what, std::uint64_t address, std::size_t bytes) const;

  std::shared_ptr<const MemoryMap> map() const;
  static std::size_t free_bytes();  ///< available memory of the host

 private:
  struct Block {
    std::byte* base = nullptr;  // of the mapping or the heap block, guard bands included
    std::size_t bytes = 0;
    bool sparse = false;
  };
  static void release(const Block& block) noexcept;
  static std::size_t mapped_bytes(std::size_t bytes);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
  std::deque<MemoryMap::Range> freed_;
  mutable std::shared_ptr<const MemoryMap> map_;  // of blocks_; null after a change
  std::string complaint_;
};

}  // namespace attune
