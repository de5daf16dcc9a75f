#pragma once

#include <string_view>

#include "generator/device/device_spec.h"

namespace attune {

/// The instruction by which a kernel multiplies 16-bit matrices on tensor cores, with fp32 accumulation.
enum class MatrixInstruction { mma_sync, wgmma };
std::string_view to_string(MatrixInstruction instruction);  ///< "mma.sync", "wgmma"
constexpr MatrixInstruction kMatrixInstructions[] = {MatrixInstruction::mma_sync, MatrixInstruction::wgmma};

/// FLOP per clock and SM that no stream of an instruction exceeds; 0 where the GPU does not have it.
double peak_flops_per_clock(MatrixInstruction instruction, const DeviceSpec& device);

}  // namespace attune
