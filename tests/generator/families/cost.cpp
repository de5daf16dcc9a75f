#include "generator/config/cost_estimate.h"

#include <cmath>
#include <numeric>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace {
double cost(const AttentionProblem& problem, const std::string& config, const char* device = "a100") {
  return estimate_cost(problem, parse_config(config), find_device(device)).microseconds;
}
}  // namespace

TEST_CASE("an estimate lies above what the units allow and within reach of it", "[nogpu]") {
  for (const char* key : {"a100", "h200", "rtx4090"}) {
    const DeviceSpec& device = find_device(key);
    for (const int head_dim : {64, 128, 256}) {
      AttentionProblem problem = make_problem(DataType::bf16, 4, 2048 / head_dim, 4096, head_dim);
      const KernelConfig config = default_config(problem, device);
      // Lengths that the tiles divide: nothing is padded.
      const int tiles = std::lcm(config.block_q, config.block_kv);
      problem.seq_q = problem.seq_kv = (4096 + tiles - 1) / tiles * tiles;
      const double wgmma_flops_per_clock = 4096;
      const double rate = config.family == FamilyWord::sm90 ? wgmma_flops_per_clock : device.mma_flops_per_clock;
      const CostEstimate estimate = estimate_cost(problem, config, device);
      const double peak = count_flops(problem) / (rate * device.sm_count * device.clock_mhz);
      INFO(key << " " << canonical_text(problem));
      CHECK(estimate.matrix_microseconds == Approx(peak).epsilon(0.01));
      CHECK(estimate.microseconds > peak);
      CHECK(estimate.microseconds < 4 * peak);
      CHECK(estimate.ctas_per_sm >= 1);
      CHECK(estimate.registers <= 255);
    }
  }
}

TEST_CASE("what must cost more does", "[nogpu]") {
  const AttentionProblem full = make_problem(DataType::bf16, 4, 16, 4096, 128);
  const AttentionProblem causal = make_problem(DataType::bf16, 4, 16, 4096, 128, MaskKind::causal);
  const std::string base = "sm80 q128 kv64 w8 st2";
  CHECK(cost(full, base) > 1.5 * cost(causal, base + " order=head-major-reversed"));
  CHECK(cost(causal, base) > cost(causal, base + " order=head-major-reversed"));
  CHECK(cost(full, base) > cost(full, base + " rescale10"));
  CHECK(cost(full, base) > cost(full, base + " even-tiles"));
  CHECK(cost(full, "sm80 q16 kv64 w1 st2") > cost(full, base));
  CHECK(cost(full, base, "a100") > cost(full, base, "h200"));
  AttentionProblem unaligned = full;
  unaligned.alignment = 2;
  CHECK(cost(unaligned, base) > cost(full, base));
}

TEST_CASE("what the compiler makes of a config counts", "[nogpu]") {
  const auto problem = [](int head_dim) { return make_problem(DataType::bf16, 4, 16, 4096, head_dim); };
  // 32 rows of D = 128 with Q in registers spill by the kilobyte.
  CHECK(cost(problem(128), "sm80 q128 kv64 w4 st2", "h200") >
        1.2 * cost(problem(128), "sm80 q128 kv64 w4 st2 qsmem", "h200"));
  // Fewer threads copy more chunks each, so that the same excess spills more.
  CHECK(cost(problem(128), "sm80 q64 kv96 w2 st1 qsmem", "h200") >
        1.2 * cost(problem(128), "sm80 q256 kv96 w8 st1 qsmem", "h200"));
  // Rows of nine chunks: more than the padding to 80 columns tells.
  CHECK(cost(problem(72), "sm80 q128 kv64 w4 st2", "h200") >
        1.05 * 152 / 128 * cost(problem(64), "sm80 q128 kv64 w4 st2", "h200"));
  // 48 keys of two chunks are no whole number of copies by 128 threads.
  CHECK(cost(problem(16), "sm80 q64 kv48 w4 st2", "h200") > cost(problem(16), "sm80 q64 kv64 w4 st2", "h200"));
}

TEST_CASE("warps that share a scheduler hide each other's work", "[nogpu]") {
  // The same CTAs, alone on an SM and four together: alone a warp's products and exponentials follow one another.
  const std::string alone = "sm80 q64 kv64 w4 st2";
  AttentionProblem problem = make_problem(DataType::bf16, 1, 108, 64, 64);
  problem.seq_kv = 16384;
  problem.heads_kv = 1;  // device memory has nothing to say
  const CostEstimate one = estimate_cost(problem, parse_config(alone), find_device("a100"));
  REQUIRE(one.ctas_per_sm >= 3);
  CHECK(one.microseconds > one.matrix_microseconds + one.exponential_microseconds);
  problem.heads_q = 3 * 108;
  const double three = cost(problem, alone);
  CHECK(three > one.microseconds);
  CHECK(three < 0.75 * 3 * one.microseconds);
}

TEST_CASE("the last wave counts", "[nogpu]") {
  // 108 SMs: 108 and 216 CTAs fill them, one more does not.
  AttentionProblem problem = make_problem(DataType::bf16, 1, 108, 128, 128);
  problem.seq_kv = 8192;
  const std::string config = "sm80 q128 kv64 w8 st2";
  REQUIRE(estimate_cost(problem, parse_config(config), find_device("a100")).ctas_per_sm == 1);
  const double one_wave = cost(problem, config);
  problem.heads_q = problem.heads_kv = 109;
  CHECK(cost(problem, config) > 1.7 * one_wave);
  problem.heads_q = problem.heads_kv = 216;
  CHECK(cost(problem, config) < 2.2 * one_wave);
}

TEST_CASE("estimates are finite for odd shapes", "[nogpu]") {
  for (const char* text : {"sq1 d8", "sq1 skv100000 hq32 hkv8 d128 causal", "sq100 skv3 d40 causal",
                           "sq5 skv900 d72 causal@-900", "sq2147482623 d64 causal", "b1000 hq64 sq17 d256 align2"}) {
    const AttentionProblem problem = parse_problem(text);
    const CostEstimate estimate = estimate_cost(problem, default_config(problem, find_device("l4")), find_device("l4"));
    INFO(text);
    CHECK(std::isfinite(estimate.microseconds));
    CHECK(estimate.microseconds > 0);
  }
}

TEST_CASE("sm90: registers that are lacking cost much at once", "[nogpu]") {
  // 160 registers of three consumers: O takes 64, S and P 3/4 of the keys; 28 must be left.
  const AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 128);
  const auto of_keys = [&](const char* keys) {
    return cost(problem, std::string("sm90 q192 kv") + keys + " st2 rescale10 overlap=within", "h200");
  };
  CHECK(of_keys("80") < 1.05 * of_keys("64"));
  CHECK(of_keys("96") > 1.3 * of_keys("80"));
  // Under a mask Q that is loaded ahead takes more, where heads are wide.
  const std::string config =
      "sm90 q192 kv48 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent";
  const auto ahead = [&](int head_dim) {
    AttentionProblem causal = make_problem(DataType::bf16, 4, 16, 4096, head_dim);
    causal.mask = MaskKind::causal;
    return cost(causal, config + " qst2", "h200") / cost(causal, config, "h200");
  };
  CHECK(ahead(128) < 1);
  CHECK(ahead(192) > 1.3);
}

TEST_CASE("sm90: a ring of one stage makes the other one wait", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 128);
  const std::string config = "sm90 q128 kv128 st", words = " rescale10 overlap=within";
  const double one = cost(problem, config + "1" + words, "h200"), two = cost(problem, config + "2" + words, "h200");
  CHECK(two < 0.98 * one);
  CHECK(cost(problem, config + "2" + words + " vst1", "h200") == one);
}

TEST_CASE("sm90: turns and tiles without checks of bounds are a little faster", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 64);
  const std::string config = "sm90 q128 kv128 st2 rescale10 overlap=within";
  for (const char* word : {" ordered", " even-tiles"}) {
    const double share = cost(problem, config + word, "h200") / cost(problem, config, "h200");
    CHECK(share < 0.995);
    CHECK(share > 0.97);
  }
}

namespace {
AttentionProblem backward(AttentionProblem problem) {
  problem.pass = Pass::backward;
  return problem;
}
}  // namespace

TEST_CASE("backward: an estimate lies above the units' rates, and what must cost more does", "[nogpu]") {
  const DeviceSpec& device = find_device("h200");
  const std::string base = "sm80 q64 kv64 w4 st2";
  for (const int head_dim : {64, 128}) {
    const AttentionProblem problem = backward(make_problem(DataType::bf16, 4, 16, 4096, head_dim));
    const CostEstimate estimate = estimate_cost(problem, parse_config(base), device);
    // S and dP are computed twice: seven products, not five.
    const double peak =
        7.0 / 5 * count_flops(problem) / (device.mma_flops_per_clock * device.sm_count * device.clock_mhz);
    INFO(canonical_text(problem));
    CHECK(estimate.matrix_microseconds == Approx(peak).epsilon(0.01));
    CHECK(estimate.microseconds > peak);
    CHECK(estimate.microseconds < 5 * peak);
    CHECK(estimate.registers <= 255);
    CHECK(estimate.ctas_per_sm >= 1);
    // A scheduler with a single warp hides nothing.
    CHECK(cost(problem, "sm80 q16 kv16 w1 st1", "h200") > 1.5 * cost(problem, base, "h200"));
    CHECK(cost(problem, base, "a100") > cost(problem, base, "h200"));
  }
  const AttentionProblem full = backward(make_problem(DataType::bf16, 4, 16, 4096, 128));
  CHECK(cost(full, base) >
        1.5 * cost(backward(make_problem(DataType::bf16, 4, 16, 4096, 128, MaskKind::causal)), base));
  AttentionProblem unaligned = full;
  unaligned.alignment = 2;
  CHECK(cost(unaligned, base) > cost(full, base));
  // Adding to dQ saves two of seven products, and costs adds.
  CHECK(cost(full, base + " dq=atomic", "h200") < cost(full, base, "h200"));
  CHECK(cost(full, base + " dq=atomic", "h200") > 0.6 * cost(full, base, "h200"));
  CHECK(cost(full, base + " dq=ordered", "h200") > cost(full, base + " dq=atomic", "h200"));
  // Accumulators that fill the registers spill where more CTAs are to fit.
  CHECK(cost(full, base + " cta3", "h200") > 1.1 * cost(full, base, "h200"));
  // Each query head of a group streams past the keys.
  AttentionProblem grouped = full;
  grouped.heads_kv = 2;
  CHECK(cost(grouped, base) > 0.8 * cost(full, base));
  CHECK(cost(grouped, base) < 1.3 * cost(full, base));
  // Heads apart fill SMs, and cost adds where those are full.
  AttentionProblem few = full;
  few.batch = few.heads_kv = 1;
  CHECK(cost(few, base + " kv-grad-per-query-head dq=atomic", "h200") < 0.5 * cost(few, base + " dq=atomic", "h200"));
  AttentionProblem many = backward(make_problem(DataType::bf16, 4, 32, 4096, 128, MaskKind::causal));
  many.heads_kv = 8;
  const std::string wide = "sm80 q64 kv128 w8 st2 order=l2-sections query-warps2 dq=atomic";
  CHECK(cost(many, wide + " kv-grad-per-query-head", "h200") > 1.02 * cost(many, wide, "h200"));
  CHECK(cost(many, wide + " kv-grad-per-query-head", "h200") < 1.1 * cost(many, wide, "h200"));
  CHECK(cost(few, base + " kv-grad-per-query-head dq=ordered", "h200") >
        cost(few, base + " kv-grad-per-query-head dq=atomic", "h200"));
}

TEST_CASE("backward: the end of a launch counts, by the order of tiles", "[nogpu]") {
  const auto causal = [](std::int64_t heads_q, std::int64_t heads_kv) {
    AttentionProblem problem = backward(make_problem(DataType::bf16, 1, heads_q, 4096, 128, MaskKind::causal));
    problem.heads_kv = heads_kv;
    return problem;
  };
  const std::string rows = "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic",
                    sections = "sm80 q64 kv128 w8 st2 order=l2-sections query-warps2 dq=atomic";
  // Head after head the last one begins with its longest tile: of 8 heads in 2 waves that is much, of 64 a few percent.
  CHECK(cost(causal(32, 8), rows, "h200") > 1.4 * cost(causal(32, 8), sections, "h200"));
  CHECK(cost(causal(64, 64), rows, "h200") > 1.03 * cost(causal(64, 64), sections, "h200"));
  CHECK(cost(causal(64, 64), rows, "h200") < 1.12 * cost(causal(64, 64), sections, "h200"));
  // In turns the longest tile is a head's last, which is worse.
  const std::string turns = "sm80 q64 kv128 w8 st2 query-warps2 dq=ordered";
  CHECK(cost(causal(64, 64), turns, "h200") > cost(causal(64, 64), rows, "h200"));
  // Without a mask 132 CTAs of a tile each are as many as the SMs.
  const auto full = [](std::int64_t heads) { return backward(make_problem(DataType::bf16, 1, heads, 512, 128)); };
  CHECK(cost(full(34), rows, "h200") > 1.4 * cost(full(33), rows, "h200"));
  CHECK(cost(full(66), rows, "h200") < 1.1 * cost(full(34), rows, "h200"));
}

TEST_CASE("backward: short walks take device memory's time, and sums of dQ are not worth theirs", "[nogpu]") {
  const auto with = [](std::int64_t batch, std::int64_t length, const std::string& words) {
    return cost(backward(make_problem(DataType::bf16, batch, 16, length, 128, MaskKind::causal)), "sm80 st2 " + words,
                "h200");
  };
  const double tensor_us = 2.0 * 128 * 16 * 128 * 128 / 4800e3;  // at the rate specified
  // Delta reads two tensors, dK and dV's kernel reads four and writes two, dQ's reads four and writes one.
  CHECK(with(128, 128, "q32 kv32 w2 dq=separate-kernel") > 13 * tensor_us);
  CHECK(with(128, 128, "q32 kv32 w2 dq=separate-kernel") < 20 * tensor_us);
  CHECK(with(128, 128, "q32 kv32 w2 dq=atomic") > 1.1 * with(128, 128, "q32 kv32 w2 dq=separate-kernel"));
  CHECK(with(4, 4096, "q64 kv128 w8 query-warps2 dq=atomic") <
        0.9 * with(4, 4096, "q64 kv128 w8 query-warps2 dq=separate-kernel"));
}

TEST_CASE("backward: a few spilled registers cost nothing, many do", "[nogpu]") {
  const AttentionProblem problem = backward(make_problem(DataType::bf16, 4, 12, 4096, 160, MaskKind::causal));
  // 224 accumulators of 255 registers, the fastest timed for D = 160, against 192.
  CHECK(cost(problem, "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic", "h200") <
        cost(problem, "sm80 q64 kv64 w8 st2 query-warps4 dq=atomic", "h200"));
  const AttentionProblem narrow = backward(make_problem(DataType::bf16, 4, 64, 4096, 32));
  CHECK(cost(narrow, "sm80 q64 kv128 w4 st2 cta3 dq=atomic", "h200") >
        cost(narrow, "sm80 q64 kv128 w4 st2 dq=atomic", "h200"));
}

TEST_CASE("backward: estimates are finite for odd shapes", "[nogpu]") {
  for (const char* text : {"backward sq1 d8", "backward sq1 skv100000 hq32 hkv8 d128 causal",
                           "backward sq100 skv3 d40 causal", "backward sq5 skv900 d72 causal@-900",
                           "backward sq2147482623 d64 causal", "backward b1000 hq64 sq17 d256 align2"}) {
    const AttentionProblem problem = parse_problem(text);
    INFO(text);
    for (const char* key : {"l4", "h200"}) {
      const CostEstimate estimate = estimate_cost(problem, default_config(problem, find_device(key)), find_device(key));
      CHECK(std::isfinite(estimate.microseconds));
      CHECK(estimate.microseconds > 0);
      CHECK(estimate.waves > 0);
    }
  }
}
