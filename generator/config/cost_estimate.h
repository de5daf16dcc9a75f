#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What the cost model expects of a config, and the terms that it comes from. Times are for ranking, never shown as
/// measurements.
struct CostEstimate {
  double microseconds = 0;
  double matrix_microseconds = 0;       ///< counted mma work over the unit's rate, padding included
  double exponential_microseconds = 0;  ///< exponentials and other elementwise work
  double shared_microseconds = 0;       ///< shared-memory traffic of ldmatrix
  double memory_microseconds = 0;       ///< device memory and L2
  int registers = 0;                    ///< estimated per thread
  int ctas_per_sm = 0;                  ///< that fit together
  double waves = 0;                     ///< CTAs over (ctas_per_sm * SMs)
};

/// Estimates the time of a feasible config, by the cost model of its family.
CostEstimate estimate_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
