#pragma once

#include <stdexcept>
#include <string>

namespace attune {

/// What kind of thing went wrong. The C interface returns these numbers (negated); the command maps them to exit
/// statuses.
enum class ErrorCode {
  invalid_argument = 1,  ///< the caller's input; the message says what is wrong and what to do
  unsupported,           ///< a valid request that this build or device cannot serve
  infeasible_config,     ///< a config that does not fit the problem or the device; the message holds the reasons
  no_device,             ///< no GPU, or no such device
  nvrtc_unavailable,     ///< NVRTC is missing, or newer than the driver allows
  compile_failed,        ///< the compiler refused a generated kernel; the message holds its log
  driver,                ///< a CUDA driver call failed; the message holds call, code, file and line
  io,                    ///< a file could not be read or written
  database,              ///< the tuning database is unusable; the message says what was done with it
  emulator,              ///< a kernel broke a rule on the emulator (deadlock, out of bounds, misalignment, ...)
  template_error,        ///< a template names something undeclared, or leaves something unused
  internal,              ///< a broken contract inside Attune
};

/// The one exception type of the project. The message stands alone: it needs no context to be understood.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error(invalid_argument).
[[noreturn]] inline void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

}  // namespace attune
