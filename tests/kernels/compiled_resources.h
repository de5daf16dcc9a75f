#pragma once

#include <cstddef>

#include "generator/plan/kernel_plan.h"
#include "runtime/device.h"

namespace attune::tests {

/// What NVRTC says of a kernel; each text is compiled once. For one thread.
const KernelResources& compiled_resources(const KernelLaunch& launch);

/// Which part of a table of kernels is compiled, whose columns are masks, devices and the like: one column of each row,
/// a different one from row to row, so that every row and every column are seen; or all the others, in slow cases.
enum class TableShare { one_column, other_columns };

inline bool is_in(TableShare share, std::size_t row, std::size_t column, std::size_t columns) {
  return (row % columns == column) == (share == TableShare::one_column);
}

}  // namespace attune::tests
