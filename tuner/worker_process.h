#pragma once

#include <sys/types.h>

#include <string>

namespace attune {

/// What became of a request to a worker.
struct WorkerAnswer {
  enum class Kind { answered, crashed, timed_out };
  Kind kind = Kind::answered;
  std::string text;  ///< the line that was answered; otherwise a sentence: the signal or exit status, and the child's
                     ///< last words
};

/// A child process that runs candidates (`command worker`), so that what they poison or hang dies with it. Spawned
/// (exec, never a bare fork) by the constructor's thread, whose end also ends the child. Not thread-safe.
class WorkerProcess {
 public:
  /// Throws Error(io) that names the command if it cannot be run.
  explicit WorkerProcess(const std::string& command);
  /// Ends the child: closes its input, waits up to `kFarewellSeconds`, then kills it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  static constexpr double kFarewellSeconds = 2;

  /// Sends one line and waits for one. After anything but an answer the child is dead: make a new WorkerProcess.
  WorkerAnswer ask(const std::string& request, double timeout_seconds);

  /// False once the child has ended.
  bool alive();
  pid_t pid() const { return pid_; }

 private:
  std::string describe_end();
  void kill_and_reap();

  pid_t pid_ = -1;
  int channel_ = -1;     // a socket: the child's standard input and output
  int last_words_ = -1;  // a memory file: the child's standard error
  int wait_status_ = 0;
  bool reaped_ = false;
  std::string received_;
};

/// $ATTUNE_COMMAND, else the executable or library that this code is in: the executable itself, or `attune` beside a
/// library (or in
/// ../bin). Throws Error(io) that says how to name one.
std::string find_attune_command();

}  // namespace attune
