#include "runtime/call/problem_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "attune/log.h"
#include "generator/lazy_value.h"

namespace attune {
namespace {

constexpr std::string_view kHeader = "problem";
constexpr std::size_t kMostBytes = 16 << 20;
constexpr std::chrono::milliseconds kLongestWait{1000}, kWait{2};

std::string trouble_of_system() { return std::strerror(errno); }

// A file that is open and locked, or cannot be used. No fork comes in between: a child would keep the lock as long as
// it lives.
class LockedFile {
 public:
  explicit LockedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a FIFO must not wait.
    descriptor_ = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      trouble_ = trouble_of_system();
      return;
    }
    struct stat facts {};
    if (::fstat(descriptor_, &facts) != 0) {
      trouble_ = trouble_of_system();
    } else if (!S_ISREG(facts.st_mode)) {
      trouble_ = "it is no regular file";
    } else if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      is_locked_by_another_ = errno == EWOULDBLOCK || errno == EINTR;
      trouble_ = is_locked_by_another_ ? "another process has kept it locked for a second" : trouble_of_system();
    }
  }
  ~LockedFile() {
    if (descriptor_ < 0) return;
    ::flock(descriptor_, LOCK_UN);  // a child that was made without our handlers may have a copy
    ::close(descriptor_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // Empty, or why the file cannot be used.
  const std::string& trouble() const { return trouble_; }
  bool is_locked_by_another() const { return is_locked_by_another_; }

  // The whole of it.
  std::string read() {
    std::string text;
    char buffer[1 << 14];
    for (;;) {
      const ssize_t count = ::pread(descriptor_, buffer, sizeof(buffer), static_cast<off_t>(text.size()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) trouble_ = trouble_of_system();
      if (count <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(count));
      if (text.size() > kMostBytes) {
        trouble_ = "it has more than " + std::to_string(kMostBytes) + " bytes";
        return text;
      }
    }
  }
  // All of the lines or none: a full disk must leave no half of one.
  void append(std::string_view lines, std::size_t size_before) {
    std::size_t written = 0;
    while (written < lines.size()) {
      const ssize_t count = ::write(descriptor_, lines.data() + written, lines.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        trouble_ = trouble_of_system();
        if (::ftruncate(descriptor_, static_cast<off_t>(size_before)) != 0)
          trouble_ += ", and a part of a line was left";
        return;
      }
      written += static_cast<std::size_t>(count);
    }
  }

 private:
  const ForkGate::Section section_;
  int descriptor_ = -1;
  bool is_locked_by_another_ = false;
  std::string trouble_;
};

// A line without its end, quotes or none.
std::string_view cell_of(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.size() >= 2 && line.front() == '"' && line.back() == '"') line = line.substr(1, line.size() - 2);
  return line;
}

// Adds the problem unless the file has it. Empty, or why not; `*in_file` then holds all problems of the file.
std::string add_to(LockedFile& file, const std::string& text, std::unordered_set<std::string>* in_file) {
  if (!file.trouble().empty()) return file.trouble();
  const std::string content = file.read();
  if (!file.trouble().empty()) return file.trouble();
  std::string_view left = content;
  bool has_header = false;
  while (!left.empty()) {
    const std::size_t end = left.find('\n');
    const std::string_view cell = cell_of(left.substr(0, end));
    if (has_header) {
      in_file->emplace(cell);
    } else if (cell == kHeader) {
      has_header = true;
    } else if (!cell.starts_with('#')) {  // a comment, as --shapes takes them
      return "it holds something else; a list of problems begins with the line \"problem\"";
    }
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  }
  if (!in_file->insert(text).second) return {};
  std::string lines;
  if (!content.empty() && content.back() != '\n') lines.append("\n");
  if (!has_header) lines.append(kHeader).append("\n");
  lines.append("\"").append(text).append("\"\n");  // windows have commas
  file.append(lines, content.size());
  return file.trouble();
}

}  // namespace

// Empty, or why not.
std::string ProblemLog::append(const std::string& text) {
  if (path_.extension() != ".csv") return "its name must end in .csv";
  const auto end = std::chrono::steady_clock::now() + kLongestWait;
  for (;; std::this_thread::sleep_for(kWait)) {
    LockedFile file(path_);
    if (file.is_locked_by_another() && std::chrono::steady_clock::now() < end) continue;
    std::unordered_set<std::string> in_file;
    std::string trouble = add_to(file, text, &in_file);
    if (trouble.empty()) {
      const std::lock_guard lock(mutex_);
      known_.merge(in_file);
    }
    return trouble;
  }
}

bool ProblemLog::needs(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return !stopped_ && known_.count(text) == 0;
}

void ProblemLog::note(const AttentionProblem& problem) noexcept {
  try {
    const std::string text = canonical_text(problem);
    if (!needs(text)) return;
    std::string trouble;
    {
      const ActivityMutex::Lock appending(appending_);
      if (!needs(text)) return;  // another thread was first
      trouble = append(text);
      if (trouble.empty()) return;
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    // Without the lock: who hears of it may call, too.
    log(LogLevel::warning, "ATTUNE_LOG_PROBLEMS: no problems are written to " + path_.string() + ": " + trouble);
  } catch (...) {
    // Out of memory: the call itself matters more.
  }
}

std::shared_ptr<ProblemLog> ProblemLog::of_environment() {
  const char* const named = std::getenv("ATTUNE_LOG_PROBLEMS");
  if (named == nullptr || *named == '\0') return nullptr;
  struct Logs {
    StateMutex mutex;
    std::map<std::string, std::shared_ptr<ProblemLog>> by_path;
  };
  static constinit LazyValue<Logs> all;
  Logs& logs = all.get();
  const std::lock_guard lock(logs.mutex);
  std::shared_ptr<ProblemLog>& log = logs.by_path[named];
  if (log == nullptr) log = std::make_shared<ProblemLog>(named);
  return log;
}

}  // namespace attune
