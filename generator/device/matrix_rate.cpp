#include "generator/device/matrix_rate.h"

namespace attune {
namespace {

constexpr int kHopper = 9;  // the compute capabilities with wgmma
constexpr double kMmaSyncFlopsPerClockOfHopper = kWgmmaFlopsPerClock * 2 / 3;

}  // namespace

std::string_view to_string(MatrixInstruction instruction) {
  switch (instruction) {
    case MatrixInstruction::mma_sync:
      return "mma.sync";
    case MatrixInstruction::wgmma:
      return "wgmma";
  }
  return "";
}

MatrixInstruction matrix_instruction(KernelFamily family) {
  switch (family) {
    case KernelFamily::sm80:
      return MatrixInstruction::mma_sync;
    case KernelFamily::sm90:
      return MatrixInstruction::wgmma;
  }
  return MatrixInstruction::mma_sync;
}

double peak_flops_per_clock(MatrixInstruction instruction, const DeviceSpec& device) {
  const bool hopper = device.compute_major == kHopper;
  switch (instruction) {
    case MatrixInstruction::mma_sync:
      return hopper ? kMmaSyncFlopsPerClockOfHopper : device.mma_flops_per_clock;
    case MatrixInstruction::wgmma:
      return hopper ? kWgmmaFlopsPerClock : 0;
  }
  return 0;
}

}  // namespace attune
