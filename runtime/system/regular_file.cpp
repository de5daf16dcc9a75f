#include "runtime/system/regular_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace attune {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

// Empty if all is read.
std::string read_all(int descriptor, std::size_t most_bytes,
                     const std::function<std::string(const struct stat&)>& accepts, std::string& text) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return std::strerror(errno);
  if (!S_ISREG(facts.st_mode)) return std::string("it is ") + kind_of(facts.st_mode) + ", not a file";
  if (accepts) {
    if (std::string objection = accepts(facts); !objection.empty()) return objection;
  }
  text.clear();
  // The size is a hint only: files of /proc have none, and another process may write.
  text.reserve(std::min(static_cast<std::size_t>(facts.st_size), most_bytes));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::strerror(errno);
    if (count == 0) return {};
    if (static_cast<std::size_t>(count) > most_bytes - text.size()) {
      return "it has more than " + std::to_string(most_bytes) + " bytes";
    }
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

std::optional<std::string> read_regular_file(int at, const std::filesystem::path& path, std::size_t most_bytes,
                                             Links links, std::string* why_not,
                                             const std::function<std::string(const struct stat&)>& accepts) {
  const int nofollow = links == Links::refused ? O_NOFOLLOW : 0;
  // O_NONBLOCK: opening a FIFO that nobody writes to returns at once.
  const int descriptor = ::openat(at, path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | nofollow);
  std::string text, trouble;
  if (descriptor < 0) {
    trouble = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
  } else {
    try {
      trouble = read_all(descriptor, most_bytes, accepts, text);
    } catch (...) {
      ::close(descriptor);
      throw;
    }
    ::close(descriptor);
  }
  if (trouble.empty()) return text;
  if (why_not != nullptr) *why_not = trouble;
  return std::nullopt;
}

}  // namespace attune
