#pragma once

#include <cstdint>

namespace attune::testing {

/// While it lives, the allocation of this number (the first is 1), counted over all threads, fails, and all after it if
/// `from_then_on`: with std::bad_alloc, or with a null pointer where SQLite allocates. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t number, bool from_then_on = false);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Whether it came that far.
  bool happened() const;
};

}  // namespace attune::testing
