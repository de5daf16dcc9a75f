#include "generator/oracle/oracle_kernels.h"

#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("kernels of checks are rendered for both targets", "[nogpu]") {
  const AttentionProblem problem = parse_problem("fp16 b2 hq6 hkv3 sq100 skv70 d72 causal");
  const DeviceSpec& device = find_device("a100");
  for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
    for (const KernelLaunch& launch :
         {generate_comparison(operand_shape(problem, Operand::o), device, TemplateSet::embedded(), target),
          generate_checksum(device, TemplateSet::embedded(), target),
          generate_random_normal(problem.dtype, device, TemplateSet::embedded(), target)}) {
      INFO(launch.entry);
      CHECK(launch.arch == "sm_80");
      CHECK(launch.target == target);
      CHECK(launch.max_ctas == kMaxOracleCtas);
      CHECK_THAT(launch.source, ContainsSubstring(launch.entry + "(const __grid_constant__ Arguments args)"));
      CHECK(launch.lines.size() > 50);
    }
  }
}

TEST_CASE("the gradients' reference: queries, then keys, in tiles that fit the device", "[nogpu]") {
  for (const char* key : {"h200", "l4"}) {
    for (const int head_dim : {8, 72, 256}) {
      AttentionProblem problem = parse_problem("backward fp16 b2 hq6 hkv3 sq100 skv70 d64 causal");
      problem.head_dim = head_dim;
      const DeviceSpec& device = find_device(key);
      const std::vector<KernelLaunch> launches = generate_backward_reference(problem, device);
      INFO(key << " d" << head_dim);
      REQUIRE(launches.size() == 2);
      const int tile = head_dim == 256 && device.key == "l4" ? 8 : 16;
      CHECK(launches[0].grid_x(problem) == static_cast<std::uint32_t>(2 * 6 * ((100 + tile - 1) / tile)));
      CHECK(launches[1].grid_x(problem) == static_cast<std::uint32_t>(2 * 3 * ((70 + tile - 1) / tile)));
      for (const KernelLaunch& launch : launches)
        CHECK(launch.shared_bytes <= static_cast<std::size_t>(device.shared_bytes_per_block));
    }
  }
}

TEST_CASE("no problem needs more partial results than the oracle has room for", "[nogpu]") {
  AttentionProblem problem = parse_problem("b2 hq6 sq65 d72");
  const KernelLaunch launch = generate_comparison(operand_shape(problem, Operand::o), find_device("h200"));
  CHECK(launch.grid_x(problem) == 24);
  problem.batch = 1 << 20;
  CHECK(launch.grid_x(problem) == kMaxOracleCtas);
  CHECK(grid_of_elements(1) == 1);
  CHECK(grid_of_elements(2048) == 1);
  CHECK(grid_of_elements(2049) == 2);
  CHECK(grid_of_elements(std::int64_t{1} << 40) == kMaxOracleCtas);
}
