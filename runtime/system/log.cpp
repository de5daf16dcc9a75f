#include "attune/log.h"

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "generator/lazy_value.h"
#include "runtime/system/fork_gate.h"
#include "runtime/system/printable.h"
#include "runtime/system/standard_streams.h"

namespace attune {
namespace {

struct Destination {
  LogSink sink;
  int least = 0;       // of LogLevel; beyond all of them: nothing is delivered
  int deliveries = 0;  // under way
};

constexpr int kNothing = static_cast<int>(LogLevel::warning) + 1;

void say_to_standard_error(LogLevel level, std::string_view message) {
  std::string line = "attune: ";
  line.append(to_string(level)).append(": ").append(printable(message)).append("\n");
  write_to_standard_error(line);
}

// The level that $ATTUNE_LOG names.
int least_on_standard_error() {
  const char* const variable = std::getenv("ATTUNE_LOG");
  const std::string_view named = variable != nullptr ? variable : "";
  if (named == "off") return kNothing;
  for (const LogLevel level : {LogLevel::debug, LogLevel::info}) {
    if (named == to_string(level)) return static_cast<int>(level);
  }
  if (!named.empty() && named != to_string(LogLevel::warning)) {
    say_to_standard_error(LogLevel::warning, "ATTUNE_LOG is '" + std::string(named) +
                                                 "', which is no level: debug, info, warning and off are; warnings "
                                                 "are said");
  }
  return static_cast<int>(LogLevel::warning);
}

// Never destroyed: static objects may have something to say when the process ends. Standard error has its destination
// from the first, so that going back to it takes no memory and cannot fail.
struct Current {
  std::mutex mutex;  // in sections of the ForkGate, but for waiting
  std::condition_variable delivered;
  const std::shared_ptr<Destination> standard_error =
      std::make_shared<Destination>(Destination{say_to_standard_error, least_on_standard_error()});
  std::shared_ptr<Destination> destination = standard_error;
};

Current& current() {
  static constinit LazyValue<Current> made;
  return made.get();
}

// One message on its way to the sink that was current when it was said; none, where that does not want it.
class Delivery {
 public:
  explicit Delivery(LogLevel level) {
    const ForkGate::Section section;
    const std::lock_guard lock(current().mutex);
    if (static_cast<int>(level) < current().destination->least) return;
    destination_ = current().destination;
    ++destination_->deliveries;
    outer_ = innermost;
    innermost = this;
  }
  ~Delivery() {
    if (!destination_) return;
    innermost = outer_;
    const ForkGate::Section section;
    {
      const std::lock_guard lock(current().mutex);
      --destination_->deliveries;
    }
    current().delivered.notify_all();
  }
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  const LogSink* sink() const { return destination_ ? &destination_->sink : nullptr; }

  // Whether the calling thread is inside of a sink. Its deliveries cannot be waited for.
  static bool is_inside() { return innermost != nullptr; }

  // In a child, which has the deliveries of the thread that forked alone. Those who waited for others, outside of
  // sections, are gone with what they held, too.
  static void forked() {
    new (&current().mutex) std::mutex;
    new (&current().delivered) std::condition_variable;
    current().destination->deliveries = current().standard_error->deliveries = 0;
    for (const Delivery* delivery = innermost; delivery != nullptr; delivery = delivery->outer_)
      delivery->destination_->deliveries = 0;
    for (const Delivery* delivery = innermost; delivery != nullptr; delivery = delivery->outer_)
      ++delivery->destination_->deliveries;
  }

 private:
  static thread_local Delivery* innermost;

  std::shared_ptr<Destination> destination_;
  Delivery* outer_ = nullptr;
};
thread_local Delivery* Delivery::innermost = nullptr;

const ForkHook hook(nullptr, nullptr, Delivery::forked);

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
  std::shared_ptr<Destination> next;
  if (sink) next = std::make_shared<Destination>(Destination{std::move(sink), static_cast<int>(least)});
  {
    const ForkGate::Section section;
    const std::lock_guard lock(current().mutex);
    if (!next) {
      next = current().standard_error;
      next->least = least_on_standard_error();
    }
    if (next == current().destination) return;
    current().destination.swap(next);
  }
  if (Delivery::is_inside()) return;
  std::unique_lock lock(current().mutex);
  current().delivered.wait(lock, [&] { return next->deliveries == 0; });
}

bool logs(LogLevel level) {
  const ForkGate::Section section;
  const std::lock_guard lock(current().mutex);
  return static_cast<int>(level) >= current().destination->least;
}

void log(LogLevel level, std::string_view message) noexcept {
  try {
    const Delivery delivery(level);
    if (delivery.sink() != nullptr) (*delivery.sink())(level, message);
  } catch (...) {
    // A message that cannot be delivered is no reason to fail.
  }
}

}  // namespace attune
