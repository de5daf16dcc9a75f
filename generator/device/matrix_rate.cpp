#include "generator/device/matrix_rate.h"

namespace attune {

std::string_view to_string(MatrixInstruction instruction) {
  switch (instruction) {
    case MatrixInstruction::mma_sync:
      return "mma.sync";
    case MatrixInstruction::wgmma:
      return "wgmma";
  }
  return "";
}

double peak_flops_per_clock(MatrixInstruction instruction, const DeviceSpec& device) {
  switch (instruction) {
    case MatrixInstruction::mma_sync:
      return device.mma_peak_flops_per_clock;
    case MatrixInstruction::wgmma:
      return device.wgmma_flops_per_clock;
  }
  return 0;
}

}  // namespace attune
