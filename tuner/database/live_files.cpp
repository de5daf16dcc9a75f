#include "tuner/database/live_files.h"

#include <pthread.h>

#include "tuner/database/database_file.h"

namespace attune {

// Never destroyed: a process may fork while its static objects are.
LiveFiles& LiveFiles::all() {
  static LiveFiles& made = *new LiveFiles;
  return made;
}

void LiveFiles::add(DatabaseFile* file) {
  const std::lock_guard lock(mutex_);
  files_.push_back(file);
}

void LiveFiles::remove(DatabaseFile* file) {
  const std::lock_guard lock(mutex_);
  std::erase(files_, file);
}

LiveFiles::LiveFiles() { ::pthread_atfork(before_fork, after_fork, after_fork); }

void LiveFiles::before_fork() {
  LiveFiles& live = all();
  live.mutex_.lock();
  for (DatabaseFile* file : live.files_) file->close_for_fork();
}

void LiveFiles::after_fork() {
  LiveFiles& live = all();
  for (DatabaseFile* file : live.files_) file->forked();
  live.mutex_.unlock();
}

}  // namespace attune
