#include "tuner/database/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "generator/error.h"

namespace attune {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr const char* kTooLarge = "it is larger than a GiB, which no file of this kind is";
constexpr auto kPatienceForWriter = std::chrono::seconds(2);

/// A file that is open for reading.
class Source {
 public:
  explicit Source(const std::filesystem::path& path) : path_(path) {
    // Opening a pipe without O_NONBLOCK waits for a writer, for ever.
    descriptor_ = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                              : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor_ < 0) fail();
  }
  ~Source() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::string read() {
    struct stat facts {};
    if (::fstat(descriptor_, &facts) != 0) fail();
    if (S_ISDIR(facts.st_mode)) refuse("it is a folder: name a file");
    const bool terminal = S_ISCHR(facts.st_mode) && ::isatty(descriptor_) == 1;
    if (S_ISBLK(facts.st_mode) || (S_ISCHR(facts.st_mode) && !terminal)) refuse("it is a device: name a file");
    if (S_ISREG(facts.st_mode) && facts.st_size > static_cast<off_t>(kMostBytes)) refuse(kTooLarge);
    bool met_writer = !S_ISFIFO(facts.st_mode) || path_ == "-";
    if (met_writer && path_ != "-") block();
    const auto deadline = std::chrono::steady_clock::now() + kPatienceForWriter;
    std::string bytes;
    std::array<char, 1 << 16> part;
    while (true) {
      const ssize_t got = ::read(descriptor_, part.data(), part.size());
      if (got < 0 && errno == EINTR) continue;
      const bool writer = got > 0 || (got < 0 && errno == EAGAIN);
      if (!met_writer && writer) {
        met_writer = true;
        block();
      } else if (!met_writer && got == 0 && !was_closed()) {
        if (std::chrono::steady_clock::now() > deadline) refuse("it is a pipe that nobody writes to");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      if (got < 0 && !writer) fail();
      if (got == 0) return bytes;
      if (got > 0) bytes.append(part.data(), static_cast<std::size_t>(got));
      if (bytes.size() > kMostBytes) refuse(kTooLarge);
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::io,
                fmt::format("{} cannot be read: {}", path_.string(), std::generic_category().message(errno)));
  }
  [[noreturn]] void refuse(const char* why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} cannot be read: {}", path_.string(), why));
  }

  // Whether a writer of the pipe was there and is gone.
  bool was_closed() const {
    pollfd source{descriptor_, POLLIN, 0};
    return ::poll(&source, 1, 0) > 0 && (source.revents & POLLHUP) != 0;
  }

  void block() const {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags & ~O_NONBLOCK) != 0) fail();
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace

std::string read_input_file(const std::filesystem::path& path) { return Source(path).read(); }

}  // namespace attune
