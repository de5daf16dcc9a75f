#pragma once

#include <atomic>

#include "runtime/system/fork_gate.h"

namespace attune {

/// A mutex for what one thread at a time does and may take long or call code of the caller's: compiling a kernel,
/// reading packs, opening a database. A fork does not wait for it. In the child it is free, for a holder that exists no
/// more never gives it back: what is done under it changes what others see only at its end, under a StateMutex. A
/// holder that forks itself holds it in the parent alone.
class ActivityMutex {
 public:
  class Lock {
   public:
    explicit Lock(ActivityMutex& mutex) : mutex_(mutex), mark_(mutex.lock()) {}
    ~Lock() { mutex_.unlock(mark_); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    ActivityMutex& mutex_;
    const int mark_;
  };

 private:
  static constexpr int kFree = 0;

  // Returns the mark of this process, by which those of processes before the last fork are known.
  int lock() {
    const int mine = fork_generation() + 1;
    for (;;) {
      int holder = kFree;
      if (holder_.compare_exchange_strong(holder, mine, std::memory_order_acquire)) return mine;
      if (holder == mine) {
        holder_.wait(mine, std::memory_order_relaxed);
      } else if (holder != kFree && holder_.compare_exchange_strong(holder, mine, std::memory_order_acquire)) {
        return mine;
      }
    }
  }
  void unlock(int mark) {
    // Not free, and not ours: this thread forked, and another one of the child holds it.
    if (holder_.compare_exchange_strong(mark, kFree, std::memory_order_release)) holder_.notify_one();
  }

  std::atomic<int> holder_{kFree};  // the mark of the process whose thread holds it
};

}  // namespace attune
