#pragma once

#include <atomic>
#include <memory>

namespace attune {

/// A value that is made when it is first asked for and never destroyed. Threads that ask at the same time may each make
/// one; the first that is done stays. What make() throws is not kept: the next who asks makes it again.
///
/// In contrast to a static variable of a function, nobody waits for the thread that makes the value: a process that was
/// forked meanwhile, in which that thread does not exist, makes its own. Thread-safe.
template <typename T>
class LazyValue {
 public:
  constexpr LazyValue() = default;
  LazyValue(const LazyValue&) = delete;
  LazyValue& operator=(const LazyValue&) = delete;

  /// make() returns a T, or what a T is made from.
  template <typename Make>
  T& get(const Make& make) {
    T* made = value_.load(std::memory_order_acquire);
    if (made != nullptr) return *made;
    std::unique_ptr<T> mine(new T(make()));
    if (value_.compare_exchange_strong(made, mine.get(), std::memory_order_acq_rel, std::memory_order_acquire))
      made = mine.release();
    return *made;
  }
  /// The same, of a T with a default constructor.
  T& get() {
    T* made = value_.load(std::memory_order_acquire);
    if (made != nullptr) return *made;
    auto mine = std::make_unique<T>();
    if (value_.compare_exchange_strong(made, mine.get(), std::memory_order_acq_rel, std::memory_order_acquire))
      made = mine.release();
    return *made;
  }

 private:
  std::atomic<T*> value_{nullptr};
};

}  // namespace attune
