#include "runtime/system/fork_gate.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace attune {
namespace {

constexpr std::chrono::microseconds kPause{20};

// Constants before any code runs: a static variable of a function could itself be half made at a fork.
constinit std::atomic<int> inside{0};        // threads in a section
constinit std::atomic<bool> forking{false};  // who is not in a section stays out
constinit std::atomic<int> generation{0};
constinit ForkHook* hooks = nullptr;
pthread_mutex_t one_fork = PTHREAD_MUTEX_INITIALIZER;  // at a time
constinit thread_local int depth = 0;                  // of the calling thread's sections

int own() { return depth > 0 ? 1 : 0; }

void before_fork() {
  ::pthread_mutex_lock(&one_fork);
  forking = true;
  while (inside != own()) std::this_thread::sleep_for(kPause);
  for (const ForkHook* hook = hooks; hook != nullptr; hook = hook->next)
    if (hook->before != nullptr) hook->before();
}

void after_in_parent() {
  for (const ForkHook* hook = hooks; hook != nullptr; hook = hook->next)
    if (hook->in_parent != nullptr) hook->in_parent();
  forking = false;
  ::pthread_mutex_unlock(&one_fork);
}

void after_in_child() {
  ++generation;
  inside = own();  // threads that wanted to enter may have been counted for a moment
  for (const ForkHook* hook = hooks; hook != nullptr; hook = hook->next)
    if (hook->in_child != nullptr) hook->in_child();
  forking = false;
  ::pthread_mutex_unlock(&one_fork);
}

// When the library is loaded, so that no call can be under way.
[[maybe_unused]] const int registered = ::pthread_atfork(before_fork, after_in_parent, after_in_child);

}  // namespace

void ForkGate::enter() {
  if (depth++ > 0) return;
  for (;;) {
    ++inside;
    if (!forking) return;
    --inside;
    while (forking) std::this_thread::sleep_for(kPause);
  }
}

void ForkGate::leave() noexcept {
  if (--depth == 0) --inside;
}

ForkHook::ForkHook(void (*before_fork)(), void (*after_in_parent)(), void (*after_in_child)())
    : before(before_fork), in_parent(after_in_parent), in_child(after_in_child), next(hooks) {
  hooks = this;
}

int fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace attune
