#include "tuner/database/live_files.h"

#include <mutex>

#include "generator/lazy_value.h"
#include "tuner/database/database_file.h"

namespace attune {
namespace {

const ForkHook hook([] { LiveFiles::all().close_for_fork(); }, nullptr, nullptr);

}  // namespace

// Never destroyed: a process may fork while its static objects are.
LiveFiles& LiveFiles::all() {
  static constinit LazyValue<LiveFiles> made;
  return made.get();
}

void LiveFiles::add(DatabaseFile* file) {
  const std::lock_guard lock(mutex_);
  files_.push_back(file);
}

void LiveFiles::remove(DatabaseFile* file) {
  const std::lock_guard lock(mutex_);
  std::erase(files_, file);
}

void LiveFiles::close_for_fork() {
  for (DatabaseFile* file : files_) file->close();
}

}  // namespace attune
