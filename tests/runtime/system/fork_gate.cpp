// What a child finds that is forked while other threads are in the middle of something: locks, values and log sinks.
#include "runtime/system/fork_gate.h"

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attune/log.h"
#include "generator/lazy_value.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"
#include "tests/catch.h"
#include "tests/forked_child.h"

using namespace attune;
using attune::testing::succeeds_in_child;

namespace {

// A thread that is inside of something until the end of the scope.
class Meanwhile {
 public:
  template <typename Inside>
  explicit Meanwhile(Inside inside)
      : thread_([this, inside] {
          inside([this] {
            begun_ = true;
            begun_.notify_all();
            end_.wait(false);
          });
        }) {
    begun_.wait(false);
  }
  ~Meanwhile() {
    end_ = true;
    end_.notify_all();
    thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::atomic<bool> begun_{false}, end_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a fork waits for sections, and what they change is whole in the child", "[nogpu]") {
  struct State {
    StateMutex mutex;
    int first = 0, second = 0;
  } state;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::lock_guard lock(state.mutex);
        ++state.first;
        std::this_thread::yield();
        const ForkGate::Section nested;
        ++state.second;
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    const int generation = fork_generation();
    CHECK(succeeds_in_child([&] {
      const std::lock_guard lock(state.mutex);
      return state.first == state.second && fork_generation() == generation + 1;
    }));
    CHECK(fork_generation() == generation);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(state.first == state.second);
}

TEST_CASE("a section may fork itself, and so may its child", "[nogpu]") {
  StateMutex mutex;
  const ForkGate::Section section;
  CHECK(succeeds_in_child([&] {
    const std::lock_guard lock(mutex);
    return succeeds_in_child([&] { return fork_generation() == 2; });
  }));
}

TEST_CASE("what another thread is busy with is free in a child", "[nogpu]") {
  ActivityMutex mutex;
  const Meanwhile busy([&](const auto& wait) {
    const ActivityMutex::Lock lock(mutex);
    wait();
  });
  for (int i = 0; i < 3; ++i) {
    CHECK(succeeds_in_child([&] {
      int done = 0;
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
          for (int round = 0; round < 1000; ++round) {
            const ActivityMutex::Lock lock(mutex);
            ++done;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      return done == 4000;
    }));
  }
}

TEST_CASE("who forks in the middle of something holds it in the parent alone", "[nogpu]") {
  ActivityMutex mutex;
  {
    const ActivityMutex::Lock lock(mutex);
    CHECK(succeeds_in_child([&] { return ActivityMutex::Lock(mutex), true; }));
  }
  const auto in_child = [&] {
    bool is_child = false;
    {
      const ActivityMutex::Lock lock(mutex);
      const pid_t child = ::fork();
      is_child = child == 0;
      if (!is_child) {
        int status = -1;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
      }
    }
    { const ActivityMutex::Lock again(mutex); }
    ::_exit(0);
  };
  CHECK(in_child());
  const ActivityMutex::Lock still_works(mutex);
}

TEST_CASE("a value that another thread is making is made anew in a child", "[nogpu]") {
  static LazyValue<const std::string> value;
  const Meanwhile making([&](const auto& wait) {
    value.get([&] {
      wait();
      return "of the thread";
    });
  });
  CHECK(succeeds_in_child([] { return value.get([] { return "of the child"; }) == "of the child"; }));
}

TEST_CASE("a value is made once where one asks, and again after a failure", "[nogpu]") {
  static LazyValue<const int> value;
  CHECK_THROWS_AS(value.get([]() -> int { throw std::runtime_error("not yet"); }), std::runtime_error);
  CHECK(value.get([] { return 7; }) == 7);
  CHECK(value.get([]() -> int { throw std::runtime_error("not again"); }) == 7);
}

TEST_CASE("a child changes log sinks while threads that it does not have are in one", "[nogpu]") {
  const auto to_nobody = [](LogLevel, std::string_view) {};
  std::atomic<int> delivered{0};
  {
    std::atomic<bool> first{true};
    const auto wait_in_sink = [&](const auto& wait) {
      set_log_sink([&, wait](LogLevel, std::string_view) {
        ++delivered;
        if (first.exchange(false)) wait();
      });
      log(LogLevel::warning, "a message that is delivered for long");
    };
    const Meanwhile saying(wait_in_sink);
    CHECK(succeeds_in_child([&] {
      log(LogLevel::warning, "another");
      set_log_sink(to_nobody);  // waits for the deliveries of this process
      log(LogLevel::warning, "a third");
      set_log_sink({});
      return delivered == 2;
    }));
  }
  set_log_sink({});
}

TEST_CASE("a log sink may fork", "[nogpu]") {
  bool succeeded = false;
  set_log_sink([&](LogLevel, std::string_view) {
    succeeded = succeeds_in_child([] {
      set_log_sink([](LogLevel, std::string_view) {});  // from inside of one: does not wait
      log(LogLevel::warning, "in the child");
      return true;
    });
  });
  log(LogLevel::warning, "a message");
  set_log_sink({});
  CHECK(succeeded);
}
