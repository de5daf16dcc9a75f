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

TEST_CASE("defaults that were found by timing every tile hold for their head dim, mask and lengths", "[nogpu]") {
  const auto text = [](std::int64_t batch, std::int64_t seq, int head_dim, MaskKind mask, const char* device = "h200") {
    return canonical_text(
        default_config(make_problem(DataType::bf16, batch, 16, seq, head_dim, mask), find_device(device)));
  };
  const MaskKind causal = MaskKind::causal;
  CHECK(text(32, 512, 128, causal) == "sm80 q128 kv64 w4 st2 qsmem order=heads-reversed rescale8");
  CHECK(text(32, 257, 128, causal) == text(32, 512, 128, causal));
  CHECK(text(64, 256, 128, causal) == "sm80 q64 kv64 w4 st2 order=rows-reversed rescale8");
  CHECK(text(32, 513, 128, causal) == "sm80 q128 kv64 w4 st1 qsmem order=heads-reversed rescale8");
  CHECK(text(32, 512, 120, causal) == "sm80 q64 kv64 w4 st2 order=rows-reversed rescale8");
  CHECK(text(32, 512, 128, causal, "a100") == "sm80 q64 kv64 w4 st2 order=rows-reversed rescale8");
  CHECK(text(1, 512, 128, causal) == "sm80 q64 kv128 w4 st2 order=heads-reversed rescale8");  // too few tiles
  CHECK(text(32, 512, 72, causal) == "sm80 q128 kv32 w4 st3 order=heads-reversed rescale8");
  CHECK(text(32, 512, 16, causal) == "sm80 q64 kv32 w2 st3 order=heads-reversed rescale8");
  CHECK(text(32, 4096, 72, MaskKind::none) == "sm80 q128 kv64 w4 st3 rescale8");
  CHECK(text(32, 4096, 72, causal) == "sm80 q128 kv64 w4 st2 order=heads-reversed rescale8");
  CHECK(text(64, 60, 72, MaskKind::none) == "sm80 q64 kv64 w4 st2 rescale8");
  CHECK(text(32, 4096, 256, causal) == "sm80 q128 kv96 w8 st1 qsmem order=heads-reversed rescale8");
  CHECK(text(32, 512, 256, MaskKind::none) == "sm80 q128 kv64 w8 st1 qsmem rescale8");
  CHECK(text(32, 4096, 248, causal) == "sm80 q128 kv64 w8 st2 qsmem order=heads-reversed rescale8");
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
