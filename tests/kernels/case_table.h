#pragma once

#include <vector>

#include "generator/device_spec.h"
#include "tests/kernels/forward_case.h"
#include "tests/kernels/pairwise.h"

namespace attune::tests {

/// The pairwise table over the problem's and the config's factors: lengths, head dims, heads, masks, dtypes, layouts,
/// placements, alignments; tiles, warps, stages and every switch of the config, as far as the family has them.
struct CaseTable {
  std::vector<ForwardCase> cases;
  std::vector<std::string> impossible;  ///< pairs that no case shows
};

/// Cases of a kernel family feasible on `device`, each of at most `max_work` (padded queries * keys * head dim, over
/// all heads).
CaseTable pairwise_cases(const DeviceSpec& device, KernelFamily family, double max_work, std::uint32_t seed);

}  // namespace attune::tests
