#include <set>

#include "generator/error.h"
#include "generator/families/family_word.h"
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
      REQUIRE_FALSE(config.even_tiles);
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
  AttentionProblem unaligned = make_problem(DataType::bf16, 1, 16, 1000, 128, MaskKind::causal);
  unaligned.alignment = 2;
  CHECK(default_config(unaligned, find_device("h200")).block_kv == 128);
}

TEST_CASE("under a causal mask the longest tiles come first", "[nogpu]") {
  for (const char* key : {"a100", "h200"}) {
    const DeviceSpec& device = find_device(key);
    const auto order = [&](std::int64_t batch, std::int64_t heads, std::int64_t seq, int head_dim, MaskKind mask) {
      return default_config(make_problem(DataType::bf16, batch, heads, seq, head_dim, mask), device).tile_order;
    };
    const std::set<TileOrder> longest_first = {TileOrder::tile_major_reversed, TileOrder::head_major_reversed,
                                               TileOrder::l2_sections_reversed};
    CHECK(longest_first.count(order(1, 4, 1024, 128, MaskKind::causal)) == 1);
    // Many heads whose keys do not stay in L2.
    CHECK(order(64, 16, 512, 64, MaskKind::causal) == TileOrder::head_major_reversed);
    CHECK(order(1, 4, 1024, 64, MaskKind::none) == TileOrder::head_major);
  }
}

TEST_CASE("Hopper's defaults are of the sm90 family where it can serve", "[nogpu]") {
  const auto of = [](DataType dtype, std::int64_t batch, std::int64_t seq, int head_dim, MaskKind mask,
                     int alignment = 16) {
    AttentionProblem problem = make_problem(dtype, batch, 16, seq, head_dim, mask);
    problem.alignment = alignment;
    return default_config(problem, find_device("h200"));
  };
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      const bool exponentials_bind = mask == MaskKind::causal && head_dim <= 16;
      INFO(head_dim << (mask == MaskKind::causal ? " causal" : ""));
      const KernelConfig bf16 = of(DataType::bf16, 4, 4096, head_dim, mask),
                         fp16 = of(DataType::fp16, 4, 4096, head_dim, mask);
      CHECK((bf16.family == FamilyWord::sm80) == exponentials_bind);
      CHECK((fp16.family == FamilyWord::sm80) == exponentials_bind);
      CHECK(bf16.rescale_threshold == 10);
      CHECK(fp16.rescale_threshold == 8);
      CHECK(of(DataType::bf16, 4, 4096, head_dim, mask, 2).family == FamilyWord::sm80);  // TMA cannot copy it
    }
  }
  // Fewer queries a tile where there are few tiles; no more keys than there are; nothing that only a next tile needs.
  const KernelConfig few = of(DataType::bf16, 1, 1000, 128, MaskKind::none);
  CHECK(few.block_q == 128);
  CHECK(few.tile_scheduler == TileScheduler::single);
  CHECK(few.q_stages == 1);
  CHECK(of(DataType::bf16, 64, 40, 128, MaskKind::none).block_q == 64);
  CHECK(of(DataType::bf16, 64, 40, 128, MaskKind::none).block_kv == 48);
  // Heads that share K and V fill tiles that one of them would leave mostly empty.
  AttentionProblem grouped = make_problem(DataType::bf16, 24, 64, 64, 128);
  grouped.heads_kv = 16;
  CHECK(default_config(grouped, find_device("h200")).pack_gqa);
  grouped.seq_q = grouped.seq_kv = 4096;
  CHECK_FALSE(default_config(grouped, find_device("h200")).pack_gqa);
  // A step of 64 queries is a waste where there is one: mma.sync takes 16.
  CHECK(of(DataType::bf16, 64, 1, 64, MaskKind::none).family == FamilyWord::sm80);
}

TEST_CASE("defaults that were found by timing every tile hold for their head dim, mask and lengths", "[nogpu]") {
  const auto text = [](std::int64_t batch, std::int64_t seq, int head_dim, MaskKind mask, const char* device = "h200") {
    AttentionProblem problem = make_problem(DataType::bf16, batch, 16, seq, head_dim, mask);
    problem.alignment = 2;  // else Hopper has better ones
    return canonical_text(default_config(problem, find_device(device)));
  };
  const MaskKind causal = MaskKind::causal;
  CHECK(text(32, 512, 128, causal) == "sm80 q128 kv64 w4 st2 qsmem order=tile-major-reversed rescale10");
  CHECK(text(32, 257, 128, causal) == text(32, 512, 128, causal));
  CHECK(text(64, 256, 128, causal) == "sm80 q64 kv64 w4 st2 order=head-major-reversed rescale10");
  CHECK(text(32, 513, 128, causal) == "sm80 q128 kv64 w4 st1 qsmem order=tile-major-reversed rescale10");
  CHECK(text(32, 512, 120, causal) == "sm80 q64 kv64 w4 st2 order=head-major-reversed rescale10");
  CHECK(text(32, 512, 128, causal, "a100") == "sm80 q64 kv64 w4 st2 order=head-major-reversed rescale10");
  CHECK(text(1, 512, 128, causal) == "sm80 q64 kv128 w4 st2 order=tile-major-reversed rescale10");  // too few tiles
  CHECK(text(32, 512, 72, causal) == "sm80 q128 kv32 w4 st3 order=tile-major-reversed rescale10");
  CHECK(text(32, 512, 16, causal) == "sm80 q64 kv32 w2 st3 order=tile-major-reversed rescale10");
  CHECK(text(32, 4096, 72, MaskKind::none) == "sm80 q128 kv64 w4 st3 rescale10");
  CHECK(text(32, 4096, 72, causal) == "sm80 q128 kv64 w4 st2 order=tile-major-reversed rescale10");
  CHECK(text(64, 60, 72, MaskKind::none) == "sm80 q64 kv64 w4 st2 rescale10");
  CHECK(text(32, 4096, 256, causal) == "sm80 q128 kv96 w8 st1 qsmem order=tile-major-reversed rescale10");
  CHECK(text(32, 512, 256, MaskKind::none) == "sm80 q128 kv64 w8 st1 qsmem rescale10");
  CHECK(text(32, 4096, 248, causal) == "sm80 q128 kv64 w8 st2 qsmem order=tile-major-reversed rescale10");
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
