#pragma once

#include <string_view>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"

namespace attune {

/// The instruction by which a kernel multiplies 16-bit matrices on tensor cores, with fp32 accumulation.
enum class MatrixInstruction { mma_sync, wgmma };
std::string_view to_string(MatrixInstruction instruction);  ///< "mma.sync", "wgmma"
constexpr MatrixInstruction kMatrixInstructions[] = {MatrixInstruction::mma_sync, MatrixInstruction::wgmma};

/// That of a family's kernels.
MatrixInstruction matrix_instruction(KernelFamily family);

/// FLOP that wgmma does per clock and SM, on each GPU that has it: Hopper's data sheet, and measured on an H200 (4096).
constexpr double kWgmmaFlopsPerClock = 4096;

/// FLOP per clock and SM that no stream of an instruction exceeds; 0 where the GPU does not have it. mma.sync reaches
/// two thirds of wgmma's rate on Hopper (measured on an H200: 2729.5 with 8 warps, 2608 with 4), which is more than
/// DeviceSpec::mma_flops_per_clock: that is the rate of which the cost models' fitted shares are taken, not a roof.
double peak_flops_per_clock(MatrixInstruction instruction, const DeviceSpec& device);

}  // namespace attune
