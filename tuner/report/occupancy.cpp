#include "tuner/report/occupancy.h"

#include <algorithm>

#include "generator/device/register_limit.h"
#include "generator/rounding.h"

namespace attune {

Occupancy occupancy_of(const KernelLaunch& launch, const AttentionProblem& problem, int registers,
                       const DeviceSpec& device) {
  // Registers go to warps in units of 256; each CTA takes some shared memory for itself.
  constexpr int kLanes = 32, kRegisterUnit = 256;
  const int registers_of_warp = round_up(registers * kLanes, kRegisterUnit);
  const int warps = ceil_div(launch.threads, kLanes);
  const auto shared = static_cast<std::int64_t>(launch.shared_bytes) + device.shared_bytes_reserved;

  Occupancy result;
  result.entry = launch.entry;
  result.threads = launch.threads;
  result.cluster = launch.cluster;
  result.shared_bytes = launch.shared_bytes;
  result.grid = launch.grid_x(problem);
  result.tiles = launch.tiles(problem);
  result.persistent = launch.max_ctas > 0;
  result.ctas_per_sm = static_cast<int>(std::min<std::int64_t>(
      {device.ctas_per_sm, device.threads_per_sm / (warps * kLanes), device.shared_bytes_per_sm / shared,
       device.registers_per_sm / std::max(registers_of_warp * warps, 1)}));
  if (result.ctas_per_sm > 0) result.waves = result.grid / (static_cast<double>(result.ctas_per_sm) * device.sm_count);
  if (result.grid > 0)
    result.tiles_of_cta = static_cast<double>(result.tiles) * launch.cluster / static_cast<double>(result.grid);
  return result;
}

const KernelLaunch& main_launch(const KernelPlan& plan) {
  // Those of a bias's gradient are beside them.
  const auto weight = [](const KernelLaunch& launch) {
    return launch.tile_rows == TileRows::pairs ? 0 : launch.shared_bytes + 1;
  };
  return *std::max_element(plan.launches.begin(), plan.launches.end(),
                           [&](const KernelLaunch& a, const KernelLaunch& b) { return weight(a) < weight(b); });
}

Occupancy occupancy_of_main(const KernelPlan& plan, const AttentionProblem& problem, int most_registers,
                            const DeviceSpec& device) {
  const KernelLaunch& launch = main_launch(plan);
  const int limit = register_limit(launch.threads, plan.config.ctas_per_sm, device);
  return occupancy_of(launch, problem, std::min(most_registers, limit), device);
}

}  // namespace attune
