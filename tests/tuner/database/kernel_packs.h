#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/generate.h"
#include "runtime/cuda/kernel_source.h"
#include "tuner/database/kernel_pack.h"
#include "tuner/database/measurement.h"

namespace attune::test {

/// What `attune pack` would put into a pack, but for cubins that no GPU knows: "cubin of KEY" and as many bytes more.
inline PackContents example_pack(const std::vector<std::pair<std::string, std::string>>& picks,
                                 const std::string& target = "a100", std::size_t bytes = 1000) {
  const DeviceSpec& device = find_device(target);
  PackContents contents;
  contents.manifest = {std::string(attune_version()),
                       hash_of_templates(TemplateSet::embedded()),
                       device.key,
                       device.name,
                       device.sm_count,
                       arch_name(device),
                       "NVRTC 13.0 (test)",
                       "2025-01-31T12:00:00.000001Z"};
  for (const auto& [problem, config] : picks) {
    const KernelPlan plan = generate(parse_problem(problem), parse_config(config), device);
    contents.picks.push_back({plan.problem, plan.config, "exact", "a test", plan.source_hash()});
    for (const KernelLaunch& launch : plan.launches) {
      const std::string key = kernel_key(launch);
      const bool known = std::any_of(contents.kernels.begin(), contents.kernels.end(),
                                     [&](const PackKernel& kernel) { return kernel.key == key; });
      if (known) continue;
      contents.kernels.push_back({key, launch.entry, launch.source_hash, "cubin of " + key + std::string(bytes, 'x'),
                                  "ptxas info    : Used 32 registers", 12.5});
    }
  }
  return contents;
}

}  // namespace attune::test
