#pragma once

#include <string>
#include <string_view>

#include "generator/error.h"

namespace attune::cli {

/// What the command returns to the shell.
enum ExitStatus {
  kOk = 0,
  kCheckFailed = 1,    ///< a check failed, or nothing was found
  kBadInput = 2,       ///< the message names what is wrong and what to do
  kInternalError = 3,  ///< a driver call, the compiler or Attune itself failed
  kInterrupted = 130,  ///< ended by Ctrl-C; what was done is kept
};

/// Ends a verb with kCheckFailed: what it was to look at is not there.
class NothingFound final : public Error {
 public:
  explicit NothingFound(const std::string& message) : Error(ErrorCode::database, message) {}
};

ExitStatus exit_status(ErrorCode code);

/// "invalid_argument", "no_device", ...: the `code` of an error's JSON document.
std::string_view to_string(ErrorCode code);

}  // namespace attune::cli
