#include "runtime/system/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "attune/log.h"
#include "tests/catch.h"
#include "tests/source_folder.h"

using namespace attune;
namespace fs = std::filesystem;

namespace {

// The exit status of a child that does this, or 128 + the signal that ended it.
int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(work());
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Makes this process's descriptor a pipe that nobody reads.
void break_pipe(int descriptor) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) ::_exit(99);
  ::dup2(ends[1], descriptor);
  for (const int end : ends) ::close(end);
}

void redirect(int descriptor, const char* path) {
  const int file = ::open(path, O_WRONLY);
  ::dup2(file, descriptor);
  ::close(file);
}

bool is_pending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, signal) == 1;
}

}  // namespace

TEST_CASE("the library's messages to a pipe without a reader raise no signal", "[nogpu]") {
  CHECK(status_of_child([] {
          std::signal(SIGPIPE, SIG_DFL);
          break_pipe(STDERR_FILENO);
          log(LogLevel::warning, "nobody hears this");
          write_to_standard_error("nor this\n");
          sigset_t blocked;
          ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
          return ::sigismember(&blocked, SIGPIPE) == 0 && !is_pending(SIGPIPE) ? 0 : 1;
        }) == 0);
  // A signal that the program holds back itself stays as it was.
  CHECK(status_of_child([] {
          sigset_t held;
          ::sigemptyset(&held);
          ::sigaddset(&held, SIGPIPE);
          ::sigprocmask(SIG_BLOCK, &held, nullptr);
          ::raise(SIGPIPE);
          break_pipe(STDERR_FILENO);
          log(LogLevel::warning, "nobody hears this");
          return is_pending(SIGPIPE) ? 0 : 1;
        }) == 0);
  for (const bool full : {false, true}) {
    CHECK(status_of_child([&] {
            full ? redirect(STDERR_FILENO, "/dev/full") : static_cast<void>(::close(STDERR_FILENO));
            errno = 7;
            log(LogLevel::warning, "nobody hears this");
            return errno == 7 ? 0 : 1;
          }) == 0);
  }
}

TEST_CASE("a pipe that takes nothing for now is waited for: by messages a second, by results as long as it takes",
          "[nogpu]") {
  const auto fill = [](int descriptor) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_NONBLOCK) != 0) ::_exit(99);
    ::dup2(ends[1], descriptor);
    const char byte = 'x';
    while (::write(descriptor, &byte, 1) == 1) {
    }
    return ends[0];
  };
  CHECK(status_of_child([&] {
          fill(STDERR_FILENO);
          const auto begin = std::chrono::steady_clock::now();
          write_to_standard_error("nobody reads this\n");
          const auto waited = std::chrono::steady_clock::now() - begin;
          return waited > std::chrono::milliseconds(900) && waited < std::chrono::seconds(30) ? 0 : 1;
        }) == 0);
  CHECK(status_of_child([&] {
          const int reading = fill(STDOUT_FILENO);
          ::fcntl(reading, F_SETFL, 0);
          const std::string text(300'000, 'y');
          std::size_t count = 0;
          std::thread reader([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1200));
            char bytes[4096];
            for (ssize_t got = 0; count < text.size() && (got = ::read(reading, bytes, sizeof(bytes))) > 0;) {
              for (ssize_t i = 0; i < got; ++i) count += bytes[i] == 'y';
            }
          });
          write_to_standard_output(text);
          const bool whole = flush_standard_output().empty();
          reader.join();
          return whole && count == text.size() ? 0 : 1;
        }) == 0);
}

TEST_CASE("results that were lost are told until the end, and nothing follows them", "[nogpu]") {
  CHECK(status_of_child([] {
          redirect(STDOUT_FILENO, "/dev/full");
          write_to_standard_output("lost");
          if (flush_standard_output() != std::strerror(ENOSPC)) return 1;
          redirect(STDOUT_FILENO, "/dev/null");
          write_to_standard_output("the end of a document without its beginning");
          return flush_standard_output() == std::strerror(ENOSPC) ? 0 : 2;
        }) == 0);
  CHECK(status_of_child([] {
          break_pipe(STDOUT_FILENO);
          std::signal(SIGPIPE, SIG_DFL);
          write_to_standard_output(std::string(1 << 20, 'x'));
          return flush_standard_output() == std::strerror(EPIPE) ? 0 : 1;
        }) == 0);
}

TEST_CASE("closed standard descriptors are kept from files, and stay useless", "[nogpu]") {
  CHECK(status_of_child([] {
          for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(descriptor);
          keep_standard_descriptors();
          const int file = ::open("/dev/null", O_RDWR);
          char byte = 0;
          if (file <= STDERR_FILENO) return 1;
          if (::read(STDIN_FILENO, &byte, 1) >= 0 || ::write(STDOUT_FILENO, &byte, 1) >= 0) return 2;
          write_to_standard_output("lost");
          return flush_standard_output() == std::strerror(EBADF) ? 0 : 3;
        }) == 0);
}

// fmt::print throws where a stream cannot be written, iostreams and stdio lose what they were given, and all of them
// leave SIGPIPE to the program.
TEST_CASE("nothing but one module writes to the standard streams", "[nogpu]") {
  const std::regex prints(
      R"(\b(fmt::v?print(ln)?|std::c(out|err|log)|v?f?printf|v?dprintf|f?puts|f?putc|putchar|fwrite|perror|psignal)\b)"
      R"(|[(,=] *(stdout|stderr) *[,;)]|\bwrite\(((STDOUT|STDERR)_FILENO|[12]),)");
  const std::set<std::string> allowed = {"runtime/system/standard_streams.cpp"};
  std::vector<std::string> found;
  std::size_t files = 0;
  for (const char* room : {"generator", "runtime", "tuner", "bindings"}) {
    const fs::path folder = attune::testing::source_folder();
    for (const auto& entry : fs::recursive_directory_iterator(folder / room)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".h" && extension != ".c") continue;
      const std::string name = fs::relative(entry.path(), folder).string();
      ++files;
      if (allowed.count(name) > 0) continue;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        const std::string code = line.substr(0, line.find("//"));
        if (code.find_first_not_of(' ') == std::string::npos ||
            code.find_first_not_of(" *") != code.find_first_not_of(' '))
          continue;  // a comment
        if (std::regex_search(code, prints)) found.push_back(name + ":" + std::to_string(number) + ": " + line);
      }
    }
  }
  CHECK(files > 200);
  CHECK(found == std::vector<std::string>());
}
