#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

TEST_CASE("the default is feasible for every head dim on every device", "[nogpu]") {
  RandomValues random(5);
  for (const DeviceSpec& device : known_devices()) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      AttentionProblem problem = random.problem();
      problem.head_dim = head_dim;
      const KernelConfig config = default_config(problem, device);
      INFO(device.key << ": " << canonical_text(problem) << ": " << canonical_text(config));
      REQUIRE(infeasibility(problem, config, device).empty());
      REQUIRE_FALSE(config.whole_tiles);
    }
  }
}

TEST_CASE("the default shrinks until it fits a smaller GPU", "[nogpu]") {
  DeviceSpec small = find_device("sm_86");
  const AttentionProblem problem = make_problem(DataType::bf16, 8, 16, 4096, 256);
  for (const int kib : {96, 64, 48, 32, 24}) {
    small.shared_bytes_per_block = kib * 1024;
    const KernelConfig config = default_config(problem, small);
    INFO(kib << " KiB: " << canonical_text(config));
    CHECK(infeasibility(problem, config, small).empty());
  }
  small.shared_bytes_per_block = 8 * 1024;
  CHECK_THROWS_AS(default_config(problem, small), Error);
}

TEST_CASE("short sequences take small tiles", "[nogpu]") {
  const DeviceSpec& device = find_device("a100");
  CHECK(default_config(make_problem(DataType::bf16, 64, 16, 4096, 64), device).block_q == 128);
  CHECK(default_config(make_problem(DataType::bf16, 64, 16, 60, 64), device).block_q == 64);
  CHECK(default_config(make_problem(DataType::bf16, 64, 16, 1, 64), device).block_q == 16);
  CHECK(default_config(make_problem(DataType::bf16, 1, 1, 1024, 64), device).block_q == 64);
  CHECK(default_config(make_problem(DataType::bf16, 1, 1, 5, 64), device).block_kv == 16);
  CHECK(default_config(make_problem(DataType::bf16, 64, 16, 512, 64, MaskKind::causal), device).block_q == 64);
  CHECK(default_config(make_problem(DataType::bf16, 64, 16, 512, 64), device).block_q == 128);
  CHECK(
      default_config(make_problem(DataType::bf16, 1, 16, 1000, 128, MaskKind::causal), find_device("h200")).block_kv ==
      128);
}

TEST_CASE("under a causal mask the longest tiles come first", "[nogpu]") {
  const DeviceSpec& device = find_device("h200");
  CHECK(default_config(make_problem(DataType::bf16, 1, 4, 1024, 64, MaskKind::causal), device).tile_order ==
        TileOrder::heads_reversed);
  CHECK(default_config(make_problem(DataType::bf16, 32, 16, 512, 64, MaskKind::causal), device).tile_order ==
        TileOrder::rows_reversed);
  CHECK(default_config(make_problem(DataType::bf16, 1, 4, 1024, 64), device).tile_order == TileOrder::rows);
}

TEST_CASE("what has no default", "[nogpu]") {
  DeviceSpec turing = find_device("sm_80");
  turing.compute_major = 7;
  turing.compute_minor = 5;
  try {
    default_config(make_problem(DataType::fp16, 1, 1, 100, 64), turing);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring("7.5"));
  }
  CHECK_THROWS_AS(default_config(make_problem(DataType::fp16, 1, 1, 0, 64), find_device("a100")), Error);
}
