#include "tuner/cli/exit_status.h"

namespace attune::cli {

ExitStatus exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::infeasible_config:
    case ErrorCode::no_device:
    case ErrorCode::nvrtc_unavailable:
    case ErrorCode::io:
    case ErrorCode::database:
      return kBadInput;
    case ErrorCode::compile_failed:
    case ErrorCode::driver:
    case ErrorCode::emulator:
    case ErrorCode::template_error:
    case ErrorCode::internal:
      break;
  }
  return kInternalError;
}

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::infeasible_config:
      return "infeasible_config";
    case ErrorCode::no_device:
      return "no_device";
    case ErrorCode::nvrtc_unavailable:
      return "nvrtc_unavailable";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::driver:
      return "driver";
    case ErrorCode::io:
      return "io";
    case ErrorCode::database:
      return "database";
    case ErrorCode::emulator:
      return "emulator";
    case ErrorCode::template_error:
      return "template_error";
    case ErrorCode::internal:
      break;
  }
  return "internal";
}

}  // namespace attune::cli
