#pragma once

#include <string_view>

#include "generator/attention_problem.h"
#include "generator/device_spec.h"

namespace attune {

/// What each unit of a device needs for the counted work of a problem, in microseconds at the device's nominal clock:
/// no kernel of the mma.sync family is faster than the largest of them.
struct Roofline {
  double matrix_us = 0;       ///< count_flops() at the mma rate
  double exponential_us = 0;  ///< one exponential for each attended (query, key) pair and query head
  double memory_us = 0;       ///< count_bytes() at the rate of device memory
  double bound_us = 0;        ///< the largest of the three
  std::string_view bound_by;  ///< its name: "matrix products", "exponentials", "device memory"
};

Roofline roofline_of(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
