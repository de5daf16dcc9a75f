#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Clocks of an SM for the elements that tensors of pairs have for so many pairs, and bytes that they take from L2.
struct PairCost {
  double clocks = 0, l2_bytes = 0;
};
PairCost cost_of_pairs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       double pairs);

}  // namespace attune
