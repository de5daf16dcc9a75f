#pragma once

#include <mutex>

#include "runtime/system/fork_gate.h"

namespace attune {

/// A mutex for sections of the ForkGate: it guards what they read and change. In a child that was forked by any thread
/// it is free, and what it guards is whole. For std::lock_guard and std::unique_lock.
class StateMutex {
 public:
  void lock() {
    ForkGate::enter();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    ForkGate::leave();
  }

 private:
  std::mutex mutex_;
};

}  // namespace attune
