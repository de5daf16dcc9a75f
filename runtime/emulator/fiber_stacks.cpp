#include "runtime/emulator/fiber_stacks.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <mutex>

#include "generator/error.h"
#include "generator/rounding.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else  // a compiler that has no such sanitizer, as those for other machines
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace attune {
namespace {
constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kColours = 32;
constexpr std::size_t kColourBytes = 128;
constexpr std::size_t kStacksOfBlock = 32;  // those of a warp
constexpr std::size_t kBlockBytes = kStacksOfBlock * FiberStacks::kStackBytes;

// Blocks that no launch uses. An array, since a destructor gives them back, where no allocation may fail.
class IdleBlocks {
 public:
  // Null if there is none.
  std::byte* take() {
    const std::lock_guard lock(mutex_);
    return count_ == 0 ? nullptr : blocks_[--count_];
  }
  // False if there are enough.
  bool keep(std::byte* block) {
    const std::lock_guard lock(mutex_);
    if (count_ == blocks_.size()) return false;
    blocks_[count_++] = block;
    return true;
  }

 private:
  std::mutex mutex_;
  std::array<std::byte*, FiberStacks::kMostIdle / kStacksOfBlock> blocks_{};
  std::size_t count_ = 0;
};

constinit IdleBlocks idle_blocks;

std::byte* map_block() {
  void* base = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* block = static_cast<std::byte*>(base);
  for (std::size_t i = 0; i < kStacksOfBlock; ++i)
    mprotect(block + i * FiberStacks::kStackBytes, kGuardBytes, PROT_NONE);
  return block;
}
}  // namespace

FiberStacks::FiberStacks(std::size_t count) {
  const auto blocks = static_cast<std::size_t>(ceil_div(count, kStacksOfBlock));
  blocks_.reserve(blocks);
  while (blocks_.size() < blocks) {
    std::byte* block = idle_blocks.take();
    if (block == nullptr) block = map_block();
    if (block == nullptr) {
      give_back();
      throw Error(ErrorCode::driver, fmt::format("the emulator cannot map {} bytes for the stacks of {} threads",
                                                 blocks * kBlockBytes, count));
    }
    blocks_.push_back(block);
  }
}

FiberStacks::~FiberStacks() { give_back(); }

void FiberStacks::give_back() noexcept {
  for (std::byte* block : blocks_) {
    if (idle_blocks.keep(block)) continue;
    ASAN_UNPOISON_MEMORY_REGION(block, kBlockBytes);  // what is mapped here next is no stack
    munmap(block, kBlockBytes);
  }
}

std::byte* FiberStacks::top(std::size_t index) const {
  std::byte* stack = blocks_[index / kStacksOfBlock] + index % kStacksOfBlock * kStackBytes;
  // Fibers end without unwinding: a sanitizer would take what the last one left here for objects that live or died.
  ASAN_UNPOISON_MEMORY_REGION(stack + kGuardBytes, kStackBytes - kGuardBytes);
  return stack + kStackBytes - (index % kColours) * kColourBytes;
}

std::size_t FiberStacks::usable_bytes() const { return kStackBytes - kGuardBytes - kColours * kColourBytes; }

}  // namespace attune
