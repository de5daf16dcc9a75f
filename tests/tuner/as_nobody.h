#pragma once

#include <sys/fsuid.h>
#include <sys/types.h>

namespace attune::test {

/// Permission bits say nothing to root: another user for file system checks of this thread.
class AsNobody {
 public:
  AsNobody() : user_(::setfsuid(65534)) {}
  ~AsNobody() { ::setfsuid(static_cast<uid_t>(user_)); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  int user_;
};

}  // namespace attune::test
