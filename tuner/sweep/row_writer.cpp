#include "tuner/sweep/row_writer.h"

#include <fmt/format.h>

#include <iterator>
#include <thread>
#include <utility>

namespace attune {
namespace {

// Between two attempts to store what could not be stored, and how many there are when the sweep ends.
constexpr std::chrono::seconds kPauseAfterFailure{1};
constexpr int kLastAttempts = 3;

}  // namespace

void RowWriter::store(std::vector<Measurement> rows) {
  stored_or_waiting_ += rows.size();
  waiting_.push_back(std::move(rows));
  if (std::chrono::steady_clock::now() >= next_saving_) save();
}

// Oldest first. What is wrong with a row is its own; what is wrong with the database concerns those after it, too.
void RowWriter::save() {
  std::vector<std::vector<Measurement>> left;
  bool database_fails = false;
  for (std::vector<Measurement>& rows : waiting_) {
    if (!database_fails) {
      try {
        database_.append(rows);
        continue;
      } catch (const NotStored& error) {
        not_saved_because_ = error.what();
        database_fails = error.fault() == NotStored::Fault::database;
      }
    }
    left.push_back(std::move(rows));
  }
  waiting_ = std::move(left);
  // A lock that is waited for takes the time of trials.
  if (database_fails) next_saving_ = std::chrono::steady_clock::now() + kPauseAfterFailure;
}

RowWriter::Unsaved RowWriter::finish() {
  for (int attempt = 1; attempt <= kLastAttempts && !waiting_.empty(); ++attempt) {
    if (attempt > 1) std::this_thread::sleep_for(kPauseAfterFailure);
    save();
    if (database_.read_only() || (stop_ && *stop_)) break;
  }
  Unsaved unsaved;
  if (waiting_.empty()) return unsaved;
  for (std::vector<Measurement>& rows : waiting_)
    unsaved.rows.insert(unsaved.rows.end(), std::move_iterator(rows.begin()), std::move_iterator(rows.end()));
  unsaved.note =
      fmt::format("{} of {} results are not stored: {}", unsaved.rows.size(), stored_or_waiting_, not_saved_because_);
  return unsaved;
}

}  // namespace attune
