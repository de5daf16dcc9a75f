#pragma once

#include <cstddef>
#include <vector>

namespace attune {

/// Stacks for the fibers of one host thread, each with a guard page below it, so that an overflow faults instead of
/// writing into a neighbour. Pages are touched on first use only. The memory comes from stacks that are no longer in
/// use, as far as there are any: to map, guard and touch new ones costs more than many a launch. What a stack holds at
/// first is therefore anything.
class FiberStacks {
 public:
  static constexpr std::size_t kStackBytes = 128 * 1024;  // of address space, guard page included
  static constexpr std::size_t kMostIdle = 4096;          ///< stacks that the process keeps for the next launch

  /// Throws Error(driver) when the host refuses the address space. Thread-safe.
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// The highest address of a stack; stacks grow down. Offset by a few cache lines from stack to stack: 32 lanes at the
  /// same depth would otherwise compete for one cache set.
  std::byte* top(std::size_t index) const;
  std::size_t usable_bytes() const;

 private:
  void give_back() noexcept;

  std::vector<std::byte*> blocks_;  // each of a warp's stacks
};

}  // namespace attune
