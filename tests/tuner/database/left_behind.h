#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace attune::test {

/// While it lives, orphaned descendants of this process become its children, so that none can hide. At its end those
/// that run still are killed.
class LeftBehind {
 public:
  LeftBehind();
  ~LeftBehind();
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;

  /// Names of processes begun since the constructor that still run after a second's patience. Ended orphans are reaped.
  std::vector<std::string> processes();

 private:
  std::set<pid_t> before_;
};

}  // namespace attune::test
