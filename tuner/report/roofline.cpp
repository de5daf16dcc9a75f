#include "tuner/report/roofline.h"

#include <algorithm>
#include <array>
#include <utility>

#include "generator/families/kernel_family.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/operand_shape.h"

namespace attune {
namespace {

constexpr double kExponentialsOfEmulation = 16;  // KernelConfig::emulated_exponentials counts of so many

double clocks_per_microsecond(const DeviceSpec& device) {
  return static_cast<double>(device.clock_mhz) * device.sm_count;  // of all SMs
}

double output_bytes(const AttentionProblem& problem) {
  double bytes = 0;
  for (const Operand operand : outputs_of(problem)) {
    if (facts_of(operand).access(problem) == Access::writes)
      bytes += static_cast<double>(operand_shape(problem, operand).bytes());
  }
  return bytes;
}

}  // namespace

double peak_tflops(MatrixInstruction instruction, const DeviceSpec& device) {
  return peak_flops_per_clock(instruction, device) * clocks_per_microsecond(device) * 1e-6;
}

double matrix_microseconds(const AttentionProblem& problem, MatrixInstruction instruction, const DeviceSpec& device) {
  const double rate = peak_flops_per_clock(instruction, device) * clocks_per_microsecond(device);
  return rate > 0 ? count_flops(problem) / rate : 0;
}

Roofline roofline_of(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const double exponentials = static_cast<double>(count_attended_pairs(problem)) * static_cast<double>(problem.batch) *
                              static_cast<double>(problem.heads_q) *
                              (1 - config.emulated_exponentials / kExponentialsOfEmulation);
  Roofline roofline;
  roofline.instruction = family_of(problem, config).matrix_instruction;
  if (peak_flops_per_clock(roofline.instruction, device) == 0) roofline.instruction = MatrixInstruction::mma_sync;
  // With packed sequences the pairs of those that are timed.
  const bool any_pairs = problem.packed ? problem.attention_mask == PairTensor::none : !problem.has_pairs_of_call();
  if (any_pairs) {
    roofline.matrix_us = matrix_microseconds(problem, roofline.instruction, device);
    roofline.exponential_us = exponentials / (device.exp2_per_clock * clocks_per_microsecond(device));
  }
  roofline.memory_us = (any_pairs ? count_bytes(problem) : output_bytes(problem)) / (device.memory_gbps * 1e3);
  const std::array<std::pair<double, std::string_view>, 3> bounds = {{{roofline.matrix_us, "matrix products"},
                                                                      {roofline.exponential_us, "exponentials"},
                                                                      {roofline.memory_us, "device memory"}}};
  const auto highest = std::max_element(bounds.begin(), bounds.end());
  roofline.bound_us = highest->first;
  roofline.bound_by = highest->second;
  return roofline;
}

}  // namespace attune
