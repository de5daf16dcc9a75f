#include "tests/tuner/database/left_behind.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace attune::test {
namespace {

// Children of this process, by id.
std::map<pid_t, std::string> children() {
  std::map<pid_t, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename().string();
    if (!std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    // Nothing can be read of a process that ends meanwhile: iterators over the file would throw, this ends early.
    std::ostringstream text;
    text << std::ifstream(entry.path() / "stat").rdbuf();
    const std::string stat = text.str();
    // "1234 (name) S 1233 ...", where the name may hold anything.
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;  // it has just ended
    std::istringstream rest(stat.substr(close + 1));
    std::string state;
    pid_t parent = 0;
    if (rest >> state >> parent && parent == ::getpid()) {
      found[static_cast<pid_t>(std::stol(id))] = stat.substr(open + 1, close - open - 1);
    }
  }
  return found;
}

}  // namespace

LeftBehind::LeftBehind() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const auto& [pid, name] : children()) before_.insert(pid);
}

LeftBehind::~LeftBehind() {
  // Whoever is killed may leave children, too.
  for (bool found = true; found;) {
    found = false;
    for (const auto& [pid, name] : children()) {
      if (before_.contains(pid)) continue;
      found = true;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

std::vector<std::string> LeftBehind::processes() {
  std::vector<std::string> names;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  do {
    names.clear();
    for (const auto& [pid, name] : children()) {
      if (!before_.contains(pid) && ::waitpid(pid, nullptr, WNOHANG) != pid) names.push_back(name);
    }
    if (!names.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (!names.empty() && std::chrono::steady_clock::now() < deadline);
  return names;
}

}  // namespace attune::test
