// Ceilings by the instruction that multiplies, and occupancy by the plan that is launched; each over every preset.
#include "tuner/report/roofline.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/source_folder.h"
#include "tuner/database/database_json.h"
#include "tuner/report/occupancy.h"

using namespace attune;

namespace {

const DeviceSpec& h200() { return find_device("h200"); }

Roofline roofline(const std::string& problem, const std::string& config, const DeviceSpec& device = h200()) {
  return roofline_of(parse_problem(problem), parse_config(config), device);
}

/// Rows with a time of every file of presets.
std::vector<Measurement> presets() {
  std::vector<Measurement> timed;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_folder() / "tuner/presets")) {
    if (entry.path().extension() != ".json") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    for (Measurement& row : import_measurements(text.str(), entry.path().string())) {
      if (row.status == MeasurementStatus::ok && row.median_us > 0) timed.push_back(std::move(row));
    }
  }
  return timed;
}

Occupancy occupancy(const std::string& problem, const std::string& config, int registers) {
  const AttentionProblem parsed = parse_problem(problem);
  const KernelPlan plan = generate(parsed, parse_config(config), h200());
  return occupancy_of(main_launch(plan), parsed, registers, h200());
}

}  // namespace

TEST_CASE("roofline: wgmma at wgmma's rate, mma.sync at its own", "[nogpu]") {
  const std::string problem = "forward bf16 b4 hq16 sq4096 d128";
  // 4 D FLOP for each pair; 132 SMs at 1980 MHz. mma.sync does two thirds of wgmma's 4096 FLOP a clock.
  const double flops = 4.0 * 128 * 4096 * 4096 * 64, clocks = 132.0 * 1980;
  const Roofline wgmma = roofline(problem, "sm90 q128 kv128 st2");
  CHECK(to_string(wgmma.instruction) == "wgmma");
  CHECK(wgmma.matrix_us == Approx(flops / 4096 / clocks));
  CHECK(wgmma.exponential_us == Approx(4096.0 * 4096 * 64 / 16 / clocks));
  CHECK(wgmma.memory_us == Approx((4 * 2.0 * 128 + 4) * 64 * 4096 / 4.8e6));
  CHECK(wgmma.bound_by == "matrix products");
  CHECK(wgmma.bound_us == wgmma.matrix_us);
  // Packed sequences as they are timed; what an attention mask shows nobody knows.
  const std::string packed = "forward bf16 b4 hq16 sq16384 d128 packed lengths=equal";
  CHECK(roofline(packed, "sm90 q128 kv128 st2").matrix_us == Approx(wgmma.matrix_us));
  CHECK(roofline(packed + " attention-mask=111k", "sm90 q128 kv128 st2").matrix_us == 0);
  const Roofline mma = roofline(problem, "sm80 q128 kv64 w4 st2");
  CHECK(to_string(mma.instruction) == "mma.sync");
  CHECK(mma.matrix_us == Approx(wgmma.matrix_us * 3 / 2));
  CHECK(peak_tflops(MatrixInstruction::wgmma, h200()) == Approx(1070.5).margin(0.1));

  // Backward has five products where forward has two, and the same exponentials.
  const Roofline backward =
      roofline("backward bf16 b4 hq16 sq4096 d128", "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic");
  CHECK(backward.matrix_us == Approx(mma.matrix_us * 5 / 2));
  CHECK(backward.exponential_us == Approx(mma.exponential_us));

  // What a polynomial computes takes nothing of the unit that does exponentials.
  CHECK(roofline(problem, "sm90 q128 kv128 st2 exp4").exponential_us == Approx(wgmma.exponential_us * 3 / 4));

  // A GPU without wgmma has no such roof.
  const DeviceSpec& a100 = find_device("a100");
  CHECK(peak_tflops(MatrixInstruction::wgmma, a100) == 0);
  CHECK(roofline(problem, "sm80 q128 kv64 w4 st2", a100).matrix_us == Approx(flops / 2048 / (108.0 * 1410)));
  CHECK(to_string(roofline(problem, "sm90 q128 kv128 st2", a100).instruction) == "mma.sync");
}

TEST_CASE("roofline: no preset was faster than its roofline", "[nogpu]") {
  const std::vector<Measurement> rows = presets();
  double highest[2] = {}, highest_mma_sync = 0;
  for (const Measurement& row : rows) {
    std::optional<DeviceSpec> device = find_device_by_name(row.device);
    REQUIRE(device);
    device->sm_count = row.sm_count;
    const Roofline roofline = roofline_of(row.problem, row.config, *device);
    INFO(canonical_text(row.problem) << ": " << canonical_text(row.config) << ", " << row.median_us << " us");
    CHECK(roofline.bound_us > 0);
    CHECK(roofline.bound_us <= row.median_us);
    const double reached = roofline.bound_us / row.median_us;
    double& most = highest[row.problem.pass == Pass::backward];
    most = std::max(most, reached);
    if (roofline.instruction == MatrixInstruction::mma_sync) highest_mma_sync = std::max(highest_mma_sync, reached);
  }
  // Nor are the ceilings out of reach: the best kernels of either pass and instruction come near.
  CHECK(highest[0] > 0.75);
  CHECK(highest[1] > 0.45);
  CHECK(highest_mma_sync > 0.45);
}

TEST_CASE("occupancy: CTAs and waves of the plan that is launched", "[nogpu]") {
  // wgmma, a persistent CTA of 3 warpgroups and the producer on each SM: not the shape of another family.
  const Occupancy persistent =
      occupancy("forward bf16 b4 hq16 sq4096 d128", "sm90 q128 kv128 st2 scheduler=static-persistent", 168);
  CHECK(persistent.persistent);
  CHECK(persistent.threads == 384);
  CHECK(persistent.ctas_per_sm == 1);
  CHECK(persistent.grid == 132);
  CHECK(persistent.tiles == 32 * 64);
  CHECK(persistent.waves == Approx(1));
  CHECK(persistent.tiles_of_cta == Approx(32 * 64 / 132.0));
  const Occupancy one_tile = occupancy("forward bf16 b4 hq16 sq4096 d128", "sm90 q128 kv128 st2", 168);
  CHECK_FALSE(one_tile.persistent);
  CHECK(one_tile.grid == 32 * 64);
  CHECK(one_tile.waves == Approx(32 * 64 / 132.0));

  // 168 registers of 128 threads: 4 warps of 5376, three times into 65536.
  const Occupancy sm80 = occupancy("forward bf16 b2 hq8 sq1024 d64", "sm80 q128 kv64 w4 st2", 168);
  CHECK(sm80.ctas_per_sm == 3);
  CHECK(sm80.waves == Approx(8 * 16 / 396.0));
  // Registers are handed out to warps in units of 256.
  CHECK(occupancy("forward bf16 b2 hq8 sq1024 d64", "sm80 q128 kv64 w4 st2", 129).ctas_per_sm == 3);
  CHECK(occupancy("forward bf16 b2 hq8 sq1024 d64", "sm80 q128 kv64 w4 st2", 128).ctas_per_sm == 4);

  // Backward: the kernel of key tiles, one CTA of 8 warps for 128 keys of each head.
  const Occupancy backward =
      occupancy("backward bf16 b4 hq16 sq4096 d128", "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic", 255);
  CHECK(backward.threads == 256);
  CHECK(backward.grid == 32 * 64);
  CHECK(backward.ctas_per_sm == 1);
  CHECK(backward.waves == Approx(32 * 64 / 132.0));
}

namespace {

// Looks at each `stride`-th row of the presets.
void find_occupancy_of_presets(std::size_t stride) {
  const std::vector<Measurement> rows = presets();
  for (std::size_t i = 0; i < rows.size(); i += stride) {
    const Measurement& row = rows[i];
    const DeviceSpec device = find_device_by_name(row.device).value();
    const KernelPlan plan = generate(row.problem, row.config, device);
    const Occupancy found = occupancy_of_main(plan, row.problem, row.registers, device);
    INFO(canonical_text(row.problem) << ": " << canonical_text(row.config) << ", " << row.registers << " registers");
    CHECK(found.ctas_per_sm >= row.config.ctas_per_sm);
    CHECK(found.waves > 0);
    CHECK(found.tiles_of_cta >= 1);
    if (found.persistent) CHECK(found.waves <= 1);
  }
}

}  // namespace

TEST_CASE("occupancy: presets fit an SM as their configs promise", "[nogpu]") { find_occupancy_of_presets(7); }

TEST_CASE("occupancy: every preset fits an SM as its config promises", "[nogpu][slow]") {
  find_occupancy_of_presets(1);
}
