// What NVRTC makes of the defaults of each GPU that is known by name, and of each architecture: it compiles them, and
// as many of their CTAs fit an SM as the config promises.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/compiled_resources.h"

namespace attune::tests {
namespace {

/// CTAs of a launch that the registers and the shared memory of an SM hold. Warps get registers in units of 256.
int ctas_that_fit(const KernelLaunch& launch, int registers, const DeviceSpec& device) {
  const int warps = launch.threads / 32;
  const int of_warp = (registers * 32 + 255) / 256 * 256;
  const auto shared = static_cast<int>(launch.shared_bytes) + device.shared_bytes_reserved;
  return std::min(device.registers_per_sm / (of_warp * warps), device.shared_bytes_per_sm / shared);
}

}  // namespace

TEST_CASE("NVRTC compiles the defaults of every known GPU: they fit it, with hardly a spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  std::set<std::pair<std::string, std::string>> seen;  // boards of one chip share most kernels
  for (const DeviceSpec& device : known_devices()) {
    for (const char* text : {"forward bf16 b4 hq32 sq4096 d128 causal", "forward fp16 b8 hq32 sq4096 d64",
                             "backward bf16 b4 hq32 hkv8 sq4096 d128", "backward fp16 b8 hq32 sq4096 d64 causal"}) {
      const AttentionProblem problem = parse_problem(text);
      const KernelConfig config = default_config(problem, device);
      if (!seen.emplace(arch_name(device) + " " + text, canonical_text(config)).second || !draw.takes_next()) continue;
      INFO(device.key << ": " << text << " | " << canonical_text(config));
      for (const KernelLaunch& launch : generate(problem, config, device).launches) {
        const KernelResources& resources = compiled_resources(launch);
        INFO(launch.entry << ": " << resources.registers << " registers, " << resources.spill_bytes
                          << " bytes spilled");
        CHECK(resources.registers > 0);
        CHECK(resources.spill_bytes <= 128);  // around the loop, on sm_100a
        CHECK(launch.shared_bytes <= static_cast<std::size_t>(device.shared_bytes_per_block));
        CHECK(ctas_that_fit(launch, resources.registers, device) >= 1);
      }
    }
  }
}

}  // namespace attune::tests
