#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "generator/problem/attention_problem.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"

namespace attune {

/// The problems that programs called, each once, in a file that `attune tune --shapes` takes: CSV with the one column
/// "problem". Threads and processes may write to the same file; a line is whole or not there.
class ProblemLog {
 public:
  /// The file is made at the first problem; it must end in ".csv".
  explicit ProblemLog(std::filesystem::path path) : path_(std::move(path)) {}

  /// Adds the problem unless the file has it. Throws nothing: what is wrong with the file is said once, as a warning,
  /// and nothing is written from then on. A file that is no list of problems stays as it is. Waits for another process
  /// a second at most.
  void note(const AttentionProblem& problem) noexcept;

  /// That of $ATTUNE_LOG_PROBLEMS, one for each path in a process; nullptr where the variable is not set.
  static std::shared_ptr<ProblemLog> of_environment();

 private:
  std::string append(const std::string& text);

  bool needs(const std::string& text);

  const std::filesystem::path path_;
  ActivityMutex appending_;
  StateMutex mutex_;  // guards what follows
  bool stopped_ = false;
  std::unordered_set<std::string> known_;  // problems that are in the file
};

}  // namespace attune
