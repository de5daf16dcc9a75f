// Runs a target where libFuzzer is not: all of its seeds, then mutations of them, the same on each run, for some
// seconds of CPU time.
//
//   fuzz_TARGET [--seconds N] FOLDER      the last input is left in crash-TARGET when the process dies of it
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 1 << 16;

std::string current;
std::string crash_file;

// Calls nothing that a signal handler may not.
void keep_input() {
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  static_cast<void>(!::write(file, current.data(), current.size()));
  ::close(file);
}

void on_signal(int signal) {
  keep_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const std::string& input) {
  current = input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

// What formats are made of: a changed byte is seldom enough.
constexpr const char* kPieces[] = {"0",          "-1",   "1e9999",  "18446744073709551616",
                                   "2147483648", "nan",  "null",    "[",
                                   "[[[[",       "{",    "}",       "\"",
                                   ",",          "\n",   "\\u0000", "\xff",
                                   "${a}",       "//% ", " ",       "/",
                                   "@"};

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string input = any(seeds_);
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  const std::string& any(const std::vector<std::string>& list) { return list[below(list.size())]; }

  void change(std::string& input) {
    const std::size_t at = below(input.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 2:
        input.erase(at, 1 + below(16));
        break;
      case 3:
        input.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 4:
        input.insert(at, input.substr(below(input.size() + 1), 1 + below(64)));
        break;
      case 5: {
        const std::string& other = any(seeds_);
        input = input.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      default:
        input.resize(at);
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{20250131};
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
    } else {
      files.emplace_back(argv[i]);
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s [--seconds N] SEEDS...\n", argv[0]);
    return 2;
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file) {
      std::fprintf(stderr, "%s cannot be read: %s\n", path.c_str(), std::strerror(errno));
      return 2;
    }
  }
  crash_file = "crash-" + fs::path(argv[0]).filename().string();
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, on_signal);

  std::size_t runs = 0;
  try {
    for (const std::string& seed : seeds) run(seed);
    Mutator mutator(seeds);
    const double end = cpu_seconds() + seconds;
    for (; cpu_seconds() < end; ++runs) run(mutator.next());
  } catch (const std::exception& error) {
    keep_input();
    std::fprintf(stderr, "%s left the target; its input is in %s\n", error.what(), crash_file.c_str());
    return 1;
  }
  std::printf("%zu seeds and %zu mutations of them\n", seeds.size(), runs);
  return 0;
}
