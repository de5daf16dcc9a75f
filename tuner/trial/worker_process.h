#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
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
/// (exec, never a bare fork) by the constructor's thread, whose end also ends the child; what the child has started
/// itself (compilers) is killed with it, as supervise() tells. Of what it writes to standard error the last words are
/// kept, and its warnings ("attune: warning: ...") are logged here. Not thread-safe.
class WorkerProcess {
 public:
  /// Throws Error(io) that names the command if it cannot be run.
  explicit WorkerProcess(const std::string& command);
  /// Ends the child: closes its input, waits up to `kFarewellSeconds`, then kills it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  static constexpr double kFarewellSeconds = 2;
  /// For children that only compile: a runaway compiler fails instead of taking the machine's memory.
  static constexpr std::size_t kCompilerBytes = std::size_t{8} << 30;

  /// Limits the address space of the child and of what it starts from now on. Must not be used for a child that opens a
  /// CUDA device, which reserves more than there is.
  void limit_memory(std::size_t bytes);

  /// Sends one line and waits for one. After anything but an answer the child is dead: make a new WorkerProcess. Once
  /// *cancel is true the child has a few seconds left.
  WorkerAnswer ask(const std::string& request, double timeout_seconds, const std::atomic<bool>* cancel = nullptr);

  /// False once the child has ended.
  bool alive();
  pid_t pid() const { return pid_; }

 private:
  WorkerAnswer ended();
  void hear();
  void pass_on_warnings();
  std::string last_words();
  void reaped();
  void kill_and_reap();

  pid_t pid_ = -1;
  int channel_ = -1;    // a socket: the child's standard input and output
  int words_end_ = -1;  // of a pipe: the child's standard error
  std::string words_;   // the last of it
  std::string line_;    // the one that it is writing there
  int warnings_ = 0;    // passed on
  int wait_status_ = 0;
  bool reaped_ = false;
  std::string received_;
};

/// For the main() of the attune command: find_attune_command() then finds this executable, whatever it is called.
void be_attune_command() noexcept;

/// $ATTUNE_COMMAND, else this executable, if it is the attune command or its name is attune; else `attune` in the
/// folder of the executable or library that this code is in, or in ../bin of it. Throws Error(io) that says how to name
/// one.
std::string find_attune_command();

}  // namespace attune
