#pragma once

#include <mutex>
#include <vector>

namespace attune {

class DatabaseFile;

/// Every DatabaseFile of this process. SQLite believes that a process owns the locks it took, which a fork copies into
/// the child; and the child's close would drop the parent's. So nothing is open while a process forks.
class LiveFiles {
 public:
  static LiveFiles& all();
  void add(DatabaseFile* file);
  void remove(DatabaseFile* file);

 private:
  LiveFiles();
  static void before_fork();
  static void after_fork();

  std::mutex mutex_;
  std::vector<DatabaseFile*> files_;
};

}  // namespace attune
