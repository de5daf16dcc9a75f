#include "runtime/emulator/fiber_stacks.h"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include "generator/error.h"

namespace attune {
namespace {
constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kColours = 32;
constexpr std::size_t kColourBytes = 128;
}  // namespace

FiberStacks::FiberStacks(std::size_t count) : count_(count) {
  void* base =
      mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw Error(ErrorCode::driver, fmt::format("the emulator cannot map {} bytes for the stacks of {} threads",
                                               count * kStackBytes, count));
  }
  base_ = static_cast<std::byte*>(base);
  for (std::size_t i = 0; i < count; ++i) mprotect(base_ + i * kStackBytes, kGuardBytes, PROT_NONE);
}

FiberStacks::~FiberStacks() {
  ASAN_UNPOISON_MEMORY_REGION(base_, count_ * kStackBytes);  // what is mapped here next is no stack
  munmap(base_, count_ * kStackBytes);
}

std::byte* FiberStacks::top(std::size_t index) const {
  // Fibers end without unwinding: a sanitizer would take what the last one left here for objects that live or died.
  ASAN_UNPOISON_MEMORY_REGION(base_ + index * kStackBytes + kGuardBytes, kStackBytes - kGuardBytes);
  return base_ + (index + 1) * kStackBytes - (index % kColours) * kColourBytes;
}

std::size_t FiberStacks::usable_bytes() const { return kStackBytes - kGuardBytes - kColours * kColourBytes; }

}  // namespace attune
