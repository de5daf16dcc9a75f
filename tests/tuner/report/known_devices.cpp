// For each GPU that is known by name: there is a default for common problems, it fits, and what the cost model says of
// its time lies above what no kernel undercuts, not far above that, and near the best of the space.
#include <algorithm>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/config/cost_estimate.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tuner/report/occupancy.h"
#include "tuner/report/roofline.h"

using namespace attune;

namespace known_devices_test {
namespace {

// Enough work for every GPU; then decoding and short sequences, where launches and the start of CTAs take longer than
// the work.
const std::vector<std::string> kLarge = {
    "forward bf16 b4 hq32 sq4096 d128 causal",      "forward fp16 b8 hq32 sq4096 d64",
    "forward bf16 b4 hq32 hkv8 sq8192 d128 causal", "forward bf16 b4 hq16 sq4096 d256",
    "backward bf16 b4 hq32 sq4096 d128 causal",     "backward fp16 b8 hq32 sq4096 d64",
    "backward bf16 b4 hq32 hkv8 sq4096 d128",       "backward bf16 b4 hq16 sq4096 d256 causal",
};
const std::vector<std::string> kSmall = {
    "forward bf16 b1 hq32 hkv8 sq1 skv8192 d128",
    "forward fp16 b1 hq8 sq512 d72 causal",
    "backward bf16 b1 hq8 sq512 d96",
};

// The model's time of a default is at most so many times the roofline's bound, and of small problems so many
// microseconds more. An H200's best kernels reach 0.75 of it forward and 0.45 backward; boards with 100 KiB of shared
// memory hold small tiles of wide heads only.
constexpr double kMostOverRoofline = 4, kMostOverhead = 30;
// And at most so many times that of the config which the model likes best.
constexpr double kMostOverBest = 1.25, kMostOverBestOfSmall = 1.4;

double time_of_default(const AttentionProblem& problem, const DeviceSpec& device) {
  return estimate_cost(problem, default_config(problem, device), device).microseconds;
}

}  // namespace

TEST_CASE("known devices: defaults fit, and the model's times are near the roofline", "[nogpu]") {
  for (const DeviceSpec& device : known_devices()) {
    for (const std::vector<std::string>* problems : {&kLarge, &kSmall}) {
      for (const std::string& text : *problems) {
        const AttentionProblem problem = parse_problem(text);
        const KernelConfig config = default_config(problem, device);
        INFO(device.key << ": " << text << ": " << canonical_text(config));
        CHECK(infeasibility(problem, config, device).empty());
        const KernelPlan plan = generate(problem, config, device);
        for (const KernelLaunch& launch : plan.launches)
          CHECK(launch.shared_bytes <= static_cast<std::size_t>(device.shared_bytes_per_block));
        const CostEstimate cost = estimate_cost(problem, config, device);
        CHECK(cost.registers > 0);
        CHECK(cost.registers <= 255);
        const Occupancy occupancy = occupancy_of_main(plan, problem, cost.registers, device);
        CHECK(occupancy.ctas_per_sm >= 1);
        CHECK(occupancy.ctas_per_sm <= device.ctas_per_sm);
        CHECK(occupancy.ctas_per_sm * occupancy.threads <= device.threads_per_sm);
        const double bound = roofline_of(problem, config, device).bound_us;
        CHECK(cost.microseconds >= bound);
        CHECK(cost.microseconds <= kMostOverRoofline * bound + (problems == &kSmall ? kMostOverhead : 0));
      }
    }
  }
}

TEST_CASE("known devices: no default takes much longer than the model's best", "[nogpu][slow]") {
  for (const DeviceSpec& device : known_devices()) {
    if (device.key.starts_with("sm_")) continue;  // they stand for GPUs that may be quite different
    for (const std::vector<std::string>* problems : {&kLarge, &kSmall}) {
      for (const std::string& text : *problems) {
        const AttentionProblem problem = parse_problem(text);
        INFO(device.key << ": " << text << ": " << canonical_text(default_config(problem, device)));
        const Candidate best = config_space(problem, device).at(0);
        REQUIRE(best.feasible());
        CHECK(time_of_default(problem, device) <=
              (problems == &kLarge ? kMostOverBest : kMostOverBestOfSmall) * best.cost.microseconds);
      }
    }
  }
}

TEST_CASE("known devices: where K and V come from slow memory, tiles take heads whose keys stay in L2", "[nogpu]") {
  const AttentionProblem problem = parse_problem("forward bf16 b4 hq32 sq4096 d128 causal");
  for (const char* key : {"l4", "l40s"}) {
    const DeviceSpec& device = find_device(key);
    INFO(key);
    const KernelConfig config = default_config(problem, device);
    CHECK(config.tile_order == TileOrder::l2_sections_reversed);
    KernelConfig heads_at_once = config;
    heads_at_once.tile_order = TileOrder::tile_major_reversed;
    CHECK(time_of_default(problem, device) < 0.9 * estimate_cost(problem, heads_at_once, device).microseconds);
    // What L2 holds as it is has the order of all others.
    const AttentionProblem few = parse_problem("forward bf16 b1 hq8 sq4096 d128 causal");
    CHECK(default_config(few, device).tile_order == TileOrder::tile_major_reversed);
  }
  CHECK(default_config(problem, find_device("a100")).tile_order == TileOrder::tile_major_reversed);
}

}  // namespace known_devices_test
