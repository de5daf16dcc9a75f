#pragma once

#include <string_view>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/device/matrix_rate.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What each unit of a device needs for the counted work of a problem, in microseconds at the device's boost clock,
/// with the instruction that a config's kernels multiply by: none of them is faster than the largest of the three.
/// Where a call's tensors say which pairs there are, that is what any call must do: write its outputs.
struct Roofline {
  MatrixInstruction instruction = MatrixInstruction::mma_sync;
  double matrix_us = 0;       ///< count_flops() at the peak rate of `instruction`; 0 where there may be no pairs
  double exponential_us = 0;  ///< one for each attended (query, key) pair and query head, less what is emulated
  double memory_us = 0;       ///< count_bytes(), or those of the outputs, at the rate of device memory
  double bound_us = 0;        ///< the largest of the three
  std::string_view bound_by;  ///< its name: "matrix products", "exponentials", "device memory"
};

/// The roofline of a problem's kernels of `config` on `device`. A GPU without the family's instruction, on which no
/// such kernel runs, is given mma.sync's rate.
Roofline roofline_of(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

/// count_flops() at the peak rate of an instruction, in microseconds; 0 where the GPU does not have it.
double matrix_microseconds(const AttentionProblem& problem, MatrixInstruction instruction, const DeviceSpec& device);

/// TFLOP/s of an instruction on the whole device at its boost clock; 0 where the GPU does not have it.
double peak_tflops(MatrixInstruction instruction, const DeviceSpec& device);

}  // namespace attune
