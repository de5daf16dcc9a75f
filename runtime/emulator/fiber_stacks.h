#pragma once

#include <cstddef>

namespace attune {

/// Stacks for the fibers of one host thread, each with a guard page below it, so that an overflow faults instead of
/// writing into a neighbour. Pages are touched on first use only.
class FiberStacks {
 public:
  static constexpr std::size_t kStackBytes = 128 * 1024;  // of address space, guard page included

  /// Throws Error(driver) when the host refuses the address space.
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// The highest address of a stack; stacks grow down. Offset by a few cache lines from stack to stack: 32 lanes at the
  /// same depth would otherwise compete for one cache set.
  std::byte* top(std::size_t index) const;
  std::size_t usable_bytes() const;

 private:
  std::byte* base_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace attune
