#pragma once

#include <vector>

#include "runtime/system/state_mutex.h"

namespace attune {

class DatabaseFile;

/// Every DatabaseFile of this process. SQLite believes that a process owns the locks it took, which a fork copies into
/// the child; and the child's close would drop the parent's. So nothing is open while a process forks, nor is any
/// question under way: each is a section of the ForkGate.
class LiveFiles {
 public:
  static LiveFiles& all();
  void add(DatabaseFile* file);
  void remove(DatabaseFile* file);
  void close_for_fork();  ///< all sections have been left

 private:
  StateMutex mutex_;
  std::vector<DatabaseFile*> files_;
};

}  // namespace attune
