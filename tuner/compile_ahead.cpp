#include "tuner/compile_ahead.h"

#include <algorithm>

#include "generator/error.h"

namespace attune {
namespace {

// Enough to keep every process busy; what lies beyond may never be reached within the budget.
constexpr std::size_t kCandidatesAheadPerWorker = 3;

}  // namespace

CompileAhead::CompileAhead(std::vector<bool> wanted, int workers, std::function<Compile()> make_compile)
    : states_(wanted.size()),
      outcomes_(wanted.size()),
      horizon_(kCandidatesAheadPerWorker * static_cast<std::size_t>(std::max(workers, 0)) + 1) {
  for (std::size_t i = 0; i < wanted.size(); ++i) states_[i] = wanted[i] ? State::idle : State::callers;
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

void CompileAhead::work(const std::function<Compile()>& make_compile) {
  std::unique_lock lock(mutex_);
  std::size_t mine = 0;
  bool holding = false;
  try {
    lock.unlock();
    const Compile compile = make_compile();
    lock.lock();
    while (!stop_) {
      const std::size_t end = std::min(states_.size(), reached_ + horizon_);
      const auto found = std::find(states_.begin() + static_cast<std::ptrdiff_t>(std::min(reached_, end)),
                                   states_.begin() + static_cast<std::ptrdiff_t>(end), State::idle);
      mine = static_cast<std::size_t>(found - states_.begin());
      if (mine == end) {
        changed_.wait(lock);
        continue;
      }
      states_[mine] = State::under_way;
      holding = true;
      lock.unlock();
      CompileOutcome outcome = compile(mine, stop_);
      lock.lock();
      holding = false;
      outcomes_[mine] = std::move(outcome);
      states_[mine] = State::done;
      changed_.notify_all();
    }
  } catch (const Error&) {
    // The measuring process will meet the same trouble and report it.
    if (!lock.owns_lock()) lock.lock();
    if (holding) states_[mine] = State::idle;
    changed_.notify_all();
  }
}

std::optional<CompileOutcome> CompileAhead::take(std::size_t index) {
  std::unique_lock lock(mutex_);
  reached_ = std::max(reached_, index);
  changed_.notify_all();
  changed_.wait(lock, [&] { return states_[index] != State::under_way; });
  if (states_[index] == State::done) return outcomes_[index];
  states_[index] = State::callers;
  return std::nullopt;
}

}  // namespace attune
