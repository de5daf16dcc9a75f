#pragma once

#include <cstdint>
#include <string>

#include "generator/plan/kernel_plan.h"

namespace attune {

/// How a launch fills a device.
struct Occupancy {
  std::string entry;             ///< of the launch
  int threads = 0;               ///< of a CTA
  int cluster = 1;               ///< CTAs of a cluster, which an SM's neighbours must take together
  std::size_t shared_bytes = 0;  ///< dynamic, of a CTA
  std::uint32_t grid = 0;        ///< CTAs
  std::uint32_t tiles = 0;       ///< that they take
  bool persistent = false;       ///< whether a CTA takes tiles until there are none
  int ctas_per_sm = 0;           ///< that fit together; 0: not even one does
  double waves = 0;              ///< grid over (ctas_per_sm * SMs)
  double tiles_of_cta = 0;       ///< on average; of a cluster, its tiles
};

/// The occupancy of one launch with `registers` for each thread, computed from threads, registers and shared memory as
/// the hardware allocates them.
Occupancy occupancy_of(const KernelLaunch& launch, const AttentionProblem& problem, int registers,
                       const DeviceSpec& device);

/// The launch of a plan that does its products: of those whose CTAs have most shared memory the first, but for one that
/// does them anew for the gradient of a bias.
const KernelLaunch& main_launch(const KernelPlan& plan);

/// The occupancy of that launch, where a row names the most registers that any launch of the plan takes: of these it
/// has no more than the config's CTAs on an SM leave it.
Occupancy occupancy_of_main(const KernelPlan& plan, const AttentionProblem& problem, int most_registers,
                            const DeviceSpec& device);

}  // namespace attune
