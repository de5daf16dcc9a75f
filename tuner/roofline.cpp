#include "tuner/roofline.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attune {

Roofline roofline_of(const AttentionProblem& problem, const DeviceSpec& device) {
  const double clocks_per_us = static_cast<double>(device.clock_mhz) * device.sm_count;
  const double exponentials = static_cast<double>(count_attended_pairs(problem)) * static_cast<double>(problem.batch) *
                              static_cast<double>(problem.heads_q);
  Roofline roofline;
  roofline.matrix_us = count_flops(problem) / (device.mma_flops_per_clock * clocks_per_us);
  roofline.exponential_us = exponentials / (device.exp2_per_clock * clocks_per_us);
  roofline.memory_us = count_bytes(problem) / (device.memory_gbps * 1e3);
  const std::array<std::pair<double, std::string_view>, 3> bounds = {{{roofline.matrix_us, "matrix products"},
                                                                      {roofline.exponential_us, "exponentials"},
                                                                      {roofline.memory_us, "device memory"}}};
  const auto highest = std::max_element(bounds.begin(), bounds.end());
  roofline.bound_us = highest->first;
  roofline.bound_by = highest->second;
  return roofline;
}

}  // namespace attune
