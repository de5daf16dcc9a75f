// Which GPU of many is off, by made-up rows.
#include "tuner/database/node_agreement.h"

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;

namespace node_agreement_test {
namespace {

NodeGpu node(int number) {
  return {"node-" + std::to_string(number), "GPU-" + std::to_string(number), "580.159.04", 700, 1980, 3201};
}

// Of so many questions, each with a time of its own, what `gpu` answers if it takes `ratio` of the usual time. Trials
// scatter by a few percent.
std::vector<Measurement> answers_of(const NodeGpu& gpu, double ratio, int questions) {
  std::vector<Measurement> rows;
  for (int i = 0; i < questions; ++i) {
    const double scatter = 1 + 0.01 * ((i * 3 + static_cast<int>(gpu.host.back())) % 7 - 3);
    Measurement row = example_measurement("forward bf16 b2 hq8 sq" + std::to_string(1024 + 64 * i) + " d64 causal",
                                          "sm80 q128 kv64 w4 st2", (100 + 10 * i) * ratio * scatter);
    row.node = gpu;
    rows.push_back(row);
  }
  return rows;
}

void add(NodeAgreement& agreement, const std::vector<Measurement>& rows) {
  for (const Measurement& row : rows) agreement.add(row);
}

}  // namespace

TEST_CASE("of many GPUs the one whose times differ is named, and how it is set", "[nogpu]") {
  NodeAgreement agreement;
  for (int i = 0; i < 5; ++i) add(agreement, answers_of(node(i), 1, 20));
  CHECK(agreement.deviating().empty());
  NodeGpu capped = node(5);
  capped.power_limit_w = 500;
  add(agreement, answers_of(capped, 1.25, 20));
  add(agreement, answers_of(node(6), 0.85, 20));
  const std::vector<DeviatingNode> found = agreement.deviating();
  REQUIRE(found.size() == 2);
  CHECK(found[0].node == capped);
  CHECK(found[0].device == "NVIDIA H200");
  CHECK(found[0].time_ratio == Approx(1.25).margin(0.04));
  CHECK(found[0].compared == 20);
  CHECK(found[0].others == 6);
  CHECK(found[0].settings == "power limit 500 W, 6 of 6 others 700 W");
  CHECK(found[1].node.host == "node-6");
  CHECK(found[1].time_ratio == Approx(0.85).margin(0.04));
  CHECK(found[1].settings.empty());
}

TEST_CASE("of two GPUs the slower one is named; little is not compared", "[nogpu]") {
  NodeAgreement two;
  add(two, answers_of(node(0), 1, 8));
  add(two, answers_of(node(1), 1.2, 8));
  REQUIRE(two.deviating().size() == 1);
  CHECK(two.deviating().front().node.host == "node-1");

  NodeAgreement few;
  add(few, answers_of(node(0), 1, 20));
  add(few, answers_of(node(1), 1.5, 7));
  CHECK(few.deviating().empty());

  NodeAgreement within;
  add(within, answers_of(node(0), 1, 20));
  add(within, answers_of(node(1), 1.05, 20));
  CHECK(within.deviating().empty());
}

TEST_CASE("what cannot be compared is not", "[nogpu]") {
  const auto differ = [](auto change) {
    NodeAgreement agreement;
    add(agreement, answers_of(node(0), 1, 20));
    for (Measurement row : answers_of(node(1), 1.5, 20)) {
      change(row);
      agreement.add(row);
    }
    return !agreement.deviating().empty();
  };
  CHECK(differ([](Measurement&) {}));
  CHECK_FALSE(differ([](Measurement& row) { row.node = {}; }));
  CHECK_FALSE(differ([](Measurement& row) { row.node = node(0); }));
  CHECK_FALSE(differ([](Measurement& row) { row.device = "NVIDIA H100 80GB HBM3"; }));
  CHECK_FALSE(differ([](Measurement& row) { row.config.block_kv = 128; }));
  CHECK_FALSE(differ([](Measurement& row) { row.source_hash = "fedcba9876543210"; }));
  CHECK_FALSE(differ([](Measurement& row) { row.compiler = "NVRTC 14.0"; }));
  CHECK_FALSE(differ([](Measurement& row) { row.status = MeasurementStatus::wrong_result; }));
  CHECK_FALSE(differ([](Measurement& row) { row.rigor = Rigor::estimate; }));
  // Another driver or setting is what the comparison is to show.
  CHECK(differ([](Measurement& row) { row.driver = "12.9"; }));
  // A node whose GPU tells no UUID is one by its host.
  CHECK(differ([](Measurement& row) { row.node.gpu_uuid.clear(); }));
}

TEST_CASE("the doctor names the node, from rows of a database", "[nogpu]") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "all.db";
  {
    TuningDatabase database(file);
    for (int i = 0; i < 4; ++i) database.append_all(answers_of(node(i), i == 2 ? 1.3 : 1, 10));
  }
  const DatabaseDiagnosis diagnosis = examine_database(file);
  REQUIRE(diagnosis.rows == 40);
  REQUIRE(diagnosis.findings.size() == 1);
  CHECK(diagnosis.findings.front().check == "node");
  CHECK_THAT(diagnosis.findings.front().what,
             ContainsSubstring("GPU GPU-2 of host node-2 (NVIDIA H200) takes 1.") &&
                 ContainsSubstring("of the time of 3 others (median over 10 configs that both measured)"));
  CHECK_THAT(diagnosis.findings.front().advice, ContainsSubstring("power limit"));
}

}  // namespace node_agreement_test
