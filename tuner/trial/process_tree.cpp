#include "tuner/trial/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

namespace attune {
namespace {

constexpr int kMostPasses = 100;  // each finds what was begun while the one before it looked

// The parent of a process; 0 for one that has ended. "1234 (name) S 1233 ...", where the name may hold anything.
pid_t parent_of(pid_t process) {
  char path[32], text[512];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", process);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t count = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  text[std::max<ssize_t>(count, 0)] = 0;
  const char* const name_end = std::strrchr(text, ')');
  char state = 0;
  pid_t parent = 0;
  if (name_end == nullptr || std::sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return 0;
  return state == 'Z' || state == 'X' ? 0 : parent;
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t root) {
  std::vector<std::pair<pid_t, pid_t>> parents;  // of each process
  DIR* const listing = ::opendir("/proc");
  if (listing == nullptr) return {};
  while (const dirent* entry = ::readdir(listing)) {
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    pid_t process = 0;
    const auto [rest, error] = std::from_chars(entry->d_name, end, process);
    if (error == std::errc() && rest == end) parents.emplace_back(process, parent_of(process));
  }
  ::closedir(listing);
  std::vector<pid_t> found = {root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& [process, parent] : parents) {
      if (parent == found[i]) found.push_back(process);
    }
  }
  found.erase(found.begin());
  return found;
}

void kill_descendants(pid_t root) {
  std::set<pid_t> stopped;
  bool found = true;
  for (int pass = 0; found && pass < kMostPasses; ++pass) {
    found = false;
    for (const pid_t process : descendants_of(root)) {
      if (!stopped.insert(process).second) continue;
      ::kill(process, SIGSTOP);
      found = true;
    }
  }
  for (const pid_t process : stopped) ::kill(process, SIGKILL);
}

}  // namespace attune
