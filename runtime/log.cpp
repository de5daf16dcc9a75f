#include "attune/log.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace attune {
namespace {

struct Destination {
  LogSink sink;
  int least = 0;  // of LogLevel; beyond all of them: nothing is delivered
};

constexpr int kNothing = static_cast<int>(LogLevel::warning) + 1;

void write_to_standard_error(LogLevel level, std::string_view message) {
  // In one call, so that lines of several threads and processes stay whole.
  std::string line = "attune: ";
  line.append(to_string(level)).append(": ").append(message).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::shared_ptr<const Destination> beginning() {
  const char* const variable = std::getenv("ATTUNE_LOG");
  const std::string_view named = variable != nullptr ? variable : "";
  Destination destination{write_to_standard_error, static_cast<int>(LogLevel::warning)};
  if (named == "off") destination.least = kNothing;
  for (const LogLevel level : {LogLevel::debug, LogLevel::info}) {
    if (named == to_string(level)) destination.least = static_cast<int>(level);
  }
  return std::make_shared<const Destination>(std::move(destination));
}

// Never destroyed: static objects may have something to say when the process ends.
struct Current {
  std::mutex mutex;
  std::shared_ptr<const Destination> destination = beginning();
};

Current& current() {
  static Current& made = *new Current;
  return made;
}

std::shared_ptr<const Destination> current_destination() {
  const std::lock_guard lock(current().mutex);
  return current().destination;
}

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
  }
  return "unknown";
}

void set_log_sink(LogSink sink, LogLevel least) {
  auto destination =
      sink ? std::make_shared<const Destination>(Destination{std::move(sink), static_cast<int>(least)}) : beginning();
  const std::lock_guard lock(current().mutex);
  current().destination.swap(destination);
}

bool logs(LogLevel level) { return static_cast<int>(level) >= current_destination()->least; }

void log(LogLevel level, std::string_view message) noexcept {
  try {
    const auto destination = current_destination();
    if (static_cast<int>(level) >= destination->least) destination->sink(level, message);
  } catch (...) {
    // A message that cannot be delivered is no reason to fail.
  }
}

}  // namespace attune
