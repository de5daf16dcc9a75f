#include "tuner/trial/compile_ahead.h"

#include <algorithm>

#include "generator/error.h"

namespace attune {

CompileAhead::CompileAhead(std::size_t candidates, int workers, const std::function<Compile()>& make_compile)
    : states_(candidates, State::idle), outcomes_(candidates) {
  for (int i = 0; i < workers; ++i) {
    threads_.emplace_back([this, make_compile] { work(make_compile); });
  }
}

CompileAhead::~CompileAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompileAhead::want(std::vector<std::size_t> candidates) {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = std::move(candidates);
  }
  changed_.notify_all();
}

void CompileAhead::work(const std::function<Compile()>& make_compile) {
  std::unique_lock lock(mutex_);
  std::size_t mine = 0;
  bool holding = false;
  try {
    lock.unlock();
    const Compile compile = make_compile();
    lock.lock();
    while (!stop_) {
      const auto idle = [&](std::size_t index) { return states_[index] == State::idle; };
      const auto found = std::find_if(wanted_.begin(), wanted_.end(), idle);
      if (found == wanted_.end()) {
        changed_.wait(lock);
        continue;
      }
      mine = *found;
      states_[mine] = State::under_way;
      ++under_way_;
      holding = true;
      lock.unlock();
      CompileOutcome outcome = compile(mine, stop_);
      lock.lock();
      holding = false;
      --under_way_;
      outcomes_[mine] = std::move(outcome);
      states_[mine] = State::done;
      changed_.notify_all();
    }
  } catch (const Error&) {
    // The measuring process will meet the same trouble and report it.
    if (!lock.owns_lock()) lock.lock();
    if (holding) {
      states_[mine] = State::idle;
      --under_way_;
    }
    changed_.notify_all();
  }
}

std::optional<CompileOutcome> CompileAhead::take(std::size_t index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return states_[index] != State::under_way; });
  if (states_[index] == State::done) return outcomes_[index];
  states_[index] = State::callers;
  return std::nullopt;
}

std::size_t CompileAhead::pending() const {
  const std::lock_guard lock(mutex_);
  const auto idle = [&](std::size_t index) { return states_[index] == State::idle; };
  return under_way_ + static_cast<std::size_t>(std::count_if(wanted_.begin(), wanted_.end(), idle));
}

}  // namespace attune
