#include "generator/plan/kernel_plan.h"

#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "generator/families/backward_common/convert.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("persistent CTAs are as many as asked for, or as there are tiles", "[nogpu]") {
  KernelLaunch launch;
  launch.rows_per_tile = 128;
  const AttentionProblem problem = make_problem(DataType::bf16, 2, 8, 1000, 64);
  CHECK(launch.tiles(problem) == 128);
  CHECK(launch.grid_x(problem) == 128);
  launch.max_ctas = 100;
  CHECK(launch.grid_x(problem) == 100);
  CHECK(launch.tiles(problem) == 128);
  launch.max_ctas = 132;
  CHECK(launch.grid_x(problem) == 128);
  // A cluster takes one tile.
  launch.cluster = 2;
  CHECK(launch.tiles(problem) == 128);
  CHECK(launch.grid_x(problem) == 132);
  launch.max_ctas = 0;
  CHECK(launch.grid_x(problem) == 256);
  // A tile of four heads.
  launch.cluster = 1;
  launch.rows_per_tile = 32;
  launch.heads_per_tile = 4;
  CHECK(launch.query_tiles(problem) == 32);
  CHECK(launch.tiles(problem) == 128);
}

TEST_CASE("tiles of keys are of key/value heads, or of query heads that are apart", "[nogpu]") {
  KernelLaunch launch;
  launch.tile_rows = TileRows::keys;
  launch.rows_per_tile = 64;
  AttentionProblem problem = make_problem(DataType::bf16, 2, 6, 4096, 128);
  problem.heads_kv = 2;
  problem.seq_kv = 300;
  launch.section_bytes = 40 << 20;  // Q, dO and fp32 dQ of a query head: 4 MiB
  CHECK(launch.tiles(problem) == 5 * 2 * 2);
  CHECK(launch.section_heads(problem) == 4);  // a query head of each of the four fits
  launch.section_tiles = 14;
  CHECK(launch.section_heads(problem) == 2);  // ten tiles; those of the third head are more than fourteen
  launch.section_tiles = 4;
  CHECK(launch.section_heads(problem) == 1);
  launch.section_tiles = 20;
  CHECK(launch.section_heads(problem) == 4);
  launch.section_tiles = 0;
  launch.kv_grad_per_query_head = true;
  CHECK(launch.tiles(problem) == 5 * 6 * 2);
  CHECK(launch.grid_x(problem) == 5 * 6 * 2);
  CHECK(launch.section_heads(problem) == 6);  // ten of twelve query heads
}

TEST_CASE("buffers of keys grow with the keys of key/value heads", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 2, 6, 100, 64);
  problem.heads_kv = 2;
  problem.seq_kv = 300;
  const WorkspaceBuffer of_queries{kDqSums, 64, 32, true};
  const WorkspaceBuffer of_keys{kDkSums, 64, 32, true, TileRows::keys};
  CHECK(of_queries.bytes_of(problem) == 64 * 4 * 2 * 6);
  CHECK(of_keys.bytes_of(problem) == 64 * 10 * 2 * 2);
}

TEST_CASE("packed sequences have tiles enough for any lengths", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 3, 5, 1, 64);
  problem.packed = true;
  problem.lengths = Lengths::used;
  KernelLaunch launch;
  for (const auto& [seq, tiles] :
       std::initializer_list<std::pair<std::int64_t, int>>{{1, 3}, {127, 3}, {128, 4}, {129, 4}, {1000, 10}}) {
    problem.seq_q = problem.seq_kv = seq;
    launch.rows_per_tile = 128;
    launch.tile_rows = TileRows::queries;
    CHECK(launch.query_tiles(problem) == tiles);
    CHECK(launch.grid_x(problem) == static_cast<std::uint32_t>(5 * tiles));
    launch.tile_rows = TileRows::keys;
    CHECK(launch.grid_x(problem) == static_cast<std::uint32_t>(5 * tiles));
    const WorkspaceBuffer sums{kDqSums, 64, 128, true}, of_keys{kDkSums, 64, 128, true, TileRows::keys};
    CHECK(sums.bytes_of(problem) == static_cast<std::size_t>(64 * 5 * tiles));
    CHECK(of_keys.bytes_of(problem) == static_cast<std::size_t>(64 * 5 * tiles));
  }
}

TEST_CASE("CTAs of a launch", "[nogpu]") {
  KernelLaunch launch;
  launch.rows_per_tile = 128;
  AttentionProblem problem = make_problem(DataType::bf16, 3, 5, 1, 64);
  for (const auto& [seq, tiles] :
       std::initializer_list<std::pair<std::int64_t, int>>{{1, 1}, {128, 1}, {129, 2}, {1000, 8}}) {
    problem.seq_q = seq;
    CHECK(launch.query_tiles(problem) == tiles);
    CHECK(launch.grid_x(problem) == static_cast<std::uint32_t>(15 * tiles));
  }
}

TEST_CASE("more CTAs than a grid holds", "[nogpu]") {
  KernelLaunch launch;
  launch.rows_per_tile = 16;
  AttentionProblem problem = make_problem(DataType::bf16, 1 << 15, 1 << 15, 16, 64);
  CHECK(launch.grid_x(problem) == 1u << 30);
  problem.seq_q = 32;
  try {
    launch.grid_x(problem);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring("split the batch"));
  }
  // Rows are counted over the heads of a tile.
  launch.heads_per_tile = 4;
  problem = make_problem(DataType::bf16, 1, 4, 1 << 28, 64);
  CHECK(launch.grid_x(problem) == 1u << 24);
  problem.seq_q = 1 << 29;
  try {
    launch.grid_x(problem);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring("take another config"));
  }
}

TEST_CASE("operands have names", "[nogpu]") {
  CHECK(to_string(Operand::q) == "q");
  CHECK(to_string(Operand::lse) == "lse");
}

TEST_CASE("a section holds heads whose keys and values fit", "[nogpu]") {
  KernelLaunch launch;
  launch.rows_per_tile = 128;
  launch.section_bytes = 30 << 20;
  const auto heads = [&](std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seq) {
    AttentionProblem problem = make_problem(DataType::bf16, batch, heads_q, seq, 128, MaskKind::causal);
    problem.heads_kv = heads_kv;
    return launch.section_heads(problem);
  };
  CHECK(heads(1, 16, 16, 128) == 16);      // all in one
  CHECK(heads(4, 16, 16, 4096) == 13);     // 2 MiB of each head: 15 fit, five sections of 64 heads
  CHECK(heads(1, 64, 8, 16384) == 3 * 8);  // 8 MiB of each key head: three fit, with the queries' heads that share them
  CHECK(heads(1, 4, 4, 1 << 20) == 1);     // not even one fits
  const DeviceSpec& h200 = find_device("h200");
  const auto of_config = [&](const char* config) {
    return generate(make_problem(DataType::bf16, 1, 4, 4096, 128, MaskKind::causal), parse_config(config), h200)
        .launches.front()
        .section_bytes;
  };
  CHECK(of_config("sm90 q128 kv64 st2 order=l2-sections-reversed") == static_cast<std::size_t>(h200.l2_bytes) / 2);
  CHECK(of_config("sm90 q128 kv64 st2 order=l2-sections-reversed l2parts4") ==
        static_cast<std::size_t>(h200.l2_bytes) / 4);
  launch.heads_per_tile = 8;
  CHECK(heads(1, 64, 8, 16384) == 3);  // a tile holds all heads of a group
}

TEST_CASE("sections of tiles of keys leave the last one full, and count one query head of a group", "[nogpu]") {
  KernelLaunch launch;
  launch.rows_per_tile = 128;
  launch.tile_rows = TileRows::keys;
  launch.section_bytes = 30 << 20;
  const auto heads = [&](std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seq) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, heads_q, seq, 128, MaskKind::causal);
    problem.heads_kv = heads_kv;
    return launch.section_heads(problem);
  };
  CHECK(heads(5, 5, 4096) == 5);    // 4 MiB of each head: seven fit
  CHECK(heads(64, 64, 4096) == 4);  // 7 would leave one
  CHECK(heads(63, 63, 4096) == 7);
  CHECK(heads(67, 67, 4096) == 7);  // no size divides it; 7 leave four, 6 one, 5 two, 4 three
  CHECK(heads(32, 8, 4096) == 4);
  CHECK(heads(16, 16, 16384) == 1);
  CHECK(heads(16, 16, 1 << 20) == 1);  // not even one fits
}
