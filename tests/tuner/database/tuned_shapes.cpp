#include "tuner/database/tuned_shapes.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace tuned_shapes_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

}  // namespace

TEST_CASE("near: by lengths, work for each SM, head dim, group and dtype", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const auto distance = [&](const std::string& tuned, const std::string& asked, int sm_count = kSms) {
    fs::remove(file);
    TuningDatabase database(file);
    database.append(example_measurement("forward " + tuned));
    const auto near = database.near(parse_problem("forward " + asked), sm_count);
    INFO(tuned << ", asked for " << asked);
    REQUIRE(near.size() == 1);
    CHECK(near[0].problem == canonical_text(parse_problem("forward " + tuned)));
    CHECK(near[0].device == kDevice);
    CHECK(near[0].same_problem == asked.starts_with(tuned));
    return near[0].distance;
  };
  const auto about = [](double value) { return Approx(value).margin(1e-9); };
  const std::string base = "bf16 b4 hq8 sq2048 d64";  // 3.9 tiles of 128 queries for each SM
  CHECK(distance(base, base) == 0);
  CHECK(distance(base, base + " scale0.3 bhsd") == 0);
  // Twice the queries of as many sequences, with as many keys or twice as many; as many queries in all.
  CHECK(distance(base, "bf16 b4 hq8 sq4096 skv2048 d64") == about(0.35 + 0.025 + 1.5));
  CHECK(distance(base, "bf16 b4 hq8 sq2048 skv4096 d64") == about(0.35 + 0.025));
  CHECK(distance(base, "bf16 b4 hq8 sq4096 d64") == about(2 * (0.35 + 0.025) + 1.5));
  CHECK(distance("bf16 b4 hq8 sq4096 d64", base) == about(2 * (0.35 + 0.025) + 1.5));
  CHECK(distance(base, "bf16 b2 hq8 sq4096 d64") == about(2 * (0.35 + 0.025)));
  CHECK(distance(base, "bf16 b8 hq8 sq2048 d64") == about(1.5));
  CHECK(distance(base, "bf16 b4 hq32 hkv32 sq2048 d64") == about(2 * 1.5));
  // Beyond 4096, and below 32, lengths hardly matter by themselves.
  CHECK(distance("bf16 b4 hq8 sq4096 d64", "bf16 b1 hq8 sq16384 d64") == about(4 * 0.025));
  CHECK(distance("bf16 b512 hq8 sq32 d64", "bf16 b2048 hq8 sq8 d64") == about(4 * 0.025));
  // Neither does work beyond 64 tiles for each SM, or below a tenth of one.
  CHECK(distance("bf16 b512 hq8 sq2048 d64", "bf16 b128 hq8 sq2048 d64") == about(0));
  CHECK(distance("bf16 b1 hq1 sq256 d64", "bf16 b1 hq2 sq256 d64") == about(0));
  // 64 tiles a device of 64 SMs: one for each, a half for each of 128; clamped where there are more.
  CHECK(distance("bf16 b1 hq8 sq1024 d64", "bf16 b2 hq8 sq1024 d64", 64) == about(1.5));
  CHECK(distance("bf16 b1 hq8 sq1024 d64", "bf16 b2 hq8 sq1024 d64", 640) == about(1.5));
  CHECK(distance("bf16 b1 hq8 sq1024 d64", "bf16 b2 hq8 sq1024 d64", 6400) == about(0));
  // Packed sequences lie where equal ones do, and weigh 1 as a feature; used lengths, which are another one, 2.
  CHECK(distance("bf16 b4 hq8 sq8192 d64 packed", "bf16 b4 hq8 sq8192 d64 packed") == 0);
  CHECK(distance("bf16 b4 hq8 sq2048 d64 used", "bf16 b4 hq8 sq8192 d64 packed") == about(2));
  CHECK(distance(base, "bf16 b4 hq8 sq8192 d64 packed") == about(1));
  CHECK(distance("bf16 b4 hq8 sq8192 d64 packed", base) == about(1));
  CHECK(distance("bf16 b4 hq8 sq8192 d64 packed", "bf16 b4 hq8 sq16384 d64 packed") == about(2 * (0.35 + 0.025) + 1.5));
  CHECK(distance("bf16 b4 hq8 sq8192 d64 packed", "bf16 b4 hq8 sq8191 d64 packed") == 0);  // and yet another problem
  CHECK(distance(base, "bf16 b4 hq8 sq2048 d72") == about(0.4));
  CHECK(distance(base, "bf16 b4 hq8 sq2048 d8") == about(7 * 0.4));
  CHECK(distance(base, "bf16 b4 hq8 hkv2 sq2048 d64") == about(2 * 0.3));
  CHECK(distance(base, "fp16 b4 hq8 sq2048 d64") == about(0.2));
  CHECK(distance(base, "fp16 b8 hq8 hkv4 sq2048 d56") == about(1.5 + 0.3 + 0.4 + 0.2));

  // What no problem has is no neighbour.
  TuningDatabase database(file);
  for (const char* sizes : {"heads_kv = 0", "seq_q = -1", "batch = 0, heads_q = 0", "seq_kv = 0"}) {
    INFO(sizes);
    database.append(example_measurement("forward " + base));
    run_sql(file, std::string("UPDATE problem SET ") + sizes);
    CHECK(database.near(parse_problem("forward " + base), kSms).empty());
  }
}

TEST_CASE("winners of neighbours: the best of each other shape, nearest first, each config once", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const auto add = [&](int seq, const std::string& config, double us, const std::string& device = kDevice) {
    Measurement row = example_measurement(fmt::format("forward bf16 b1 hq8 sq{} d64", seq), config, us);
    row.device = device;
    database.append(row);
  };
  const std::string a = "sm80 q64 kv64 w4 st2", b = "sm80 q128 kv64 w4 st2", c = "sm80 q128 kv128 w8 st2",
                    d = "sm80 q64 kv128 w4 st2";
  const auto winners = [&](const std::string& problem, int count) {
    std::vector<std::string> texts;
    for (const KernelConfig& config : database.winners_of_neighbours(parse_problem(problem), kDevice, kSms, count))
      texts.push_back(canonical_text(config));
    return texts;
  };
  const std::string asked = "forward bf16 b1 hq8 sq1024 d64";
  REQUIRE(winners(asked, 3).empty());
  add(1024, d, 10);    // the asked shape itself is none of its neighbours
  add(16384, c, 500);  // far
  add(2048, a, 50);
  add(2048, c, 60);  // not the best there
  add(512, b, 50);
  add(4096, a, 50);                          // the config of a nearer one
  add(1536, d, 1, "NVIDIA A100-SXM4-80GB");  // of another device
  // 512 and 2048 are as near: by their texts.
  REQUIRE(winners(asked, 9) == std::vector<std::string>{a, b, c});
  REQUIRE(winners(asked, 2).size() == 2);
  REQUIRE(winners(asked, 1) == std::vector<std::string>{winners(asked, 9)[0]});
  REQUIRE(winners(asked, 0).empty());
  REQUIRE(winners("forward bf16 b1 hq8 sq1024 d64 scale0.3", 9) == winners(asked, 9));
  // Another head dim is a neighbour, and the asked shape of this one the nearest.
  REQUIRE(winners("forward bf16 b1 hq8 sq1024 d128", 9) == std::vector<std::string>{d, a, b, c});
  REQUIRE(winners("forward bf16 b1 hq8 sq1024 d64 causal", 9).empty());
  REQUIRE(winners("forward bf16 b1 hq8 sq1024 d64 align2", 9).empty());
}

}  // namespace tuned_shapes_test
