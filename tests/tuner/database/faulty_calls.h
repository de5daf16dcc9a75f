#pragma once

#include <string>

namespace attune::test {

/// Makes the n-th call that this process makes of the system's file functions fail while it lives: those that write
/// (open for writing, write, truncate, sync, rename, remove, make) as on a full disk, those that read as on a bad one.
/// Calls of SQLite and of the library are the same to it. One at a time, in one thread.
class FailingCall {
 public:
  explicit FailingCall(int number);
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;
  bool happened() const;  ///< so many calls were made
  std::string name() const;
};

}  // namespace attune::test
