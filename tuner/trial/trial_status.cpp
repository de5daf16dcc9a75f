#include "tuner/trial/trial_status.h"

#include <string>

namespace attune {

std::optional<MeasurementStatus> status_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::infeasible_config:
    case ErrorCode::unsupported:
      return MeasurementStatus::infeasible;
    case ErrorCode::compile_failed:
    case ErrorCode::template_error:
      return MeasurementStatus::compile_failed;
    case ErrorCode::emulator:
      return MeasurementStatus::launch_failed;
    case ErrorCode::driver: {
      const std::string text = error.what();
      const bool memory =
          text.find("out of memory") != std::string::npos || text.find("OUT_OF_MEMORY") != std::string::npos;
      return memory ? MeasurementStatus::out_of_memory : MeasurementStatus::launch_failed;
    }
    case ErrorCode::invalid_argument:
    case ErrorCode::no_device:
    case ErrorCode::nvrtc_unavailable:
    case ErrorCode::io:
    case ErrorCode::database:
    case ErrorCode::internal:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace attune
