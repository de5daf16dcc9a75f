// What is left to do of a list of problems: by databases of several jobs, for each GPU model.
#include "tuner/database/tuning_state.h"

#include "tests/catch.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::measured_now;
using attune::test::TemporaryFolder;
using attune::test::test_build;

namespace tuning_state_test {
namespace {

constexpr const char* kProblem = "forward bf16 b4 hq8 sq4096 d64";
constexpr const char* kA = "sm80 q64 kv64 w4 st2";
constexpr const char* kB = "sm80 q128 kv64 w4 st2 rescale10";
const GpuModel kH200 = {"NVIDIA H200", 132};

Measurement row(const std::string& config, double us) {
  Measurement row = example_measurement(kProblem, config, us);
  row.device = kH200.device;
  row.sm_count = kH200.sm_count;
  return measured_now(std::move(row));
}
Measurement stale(const std::string& config, double us) {
  Measurement old = row(config, us);
  old.source_hash = "0123456789abcdef";
  return old;
}
Measurement failure(const std::string& config, const std::string& reason) {
  Measurement failed = row(config, 1);
  failed.status = MeasurementStatus::wrong_result;
  failed.reason = reason;
  return failed;
}

struct Files {
  TemporaryFolder folder;
  std::vector<std::shared_ptr<TuningDatabase>> databases;

  Files() {
    for (const char* name : {"one.db", "two.db"}) databases.push_back(std::make_shared<TuningDatabase>(folder / name));
  }
  ProblemState state(const char* problem = kProblem, const GpuModel& model = kH200) const {
    return tuning_state(parse_problem(problem), model, databases, *test_build());
  }
};

}  // namespace

TEST_CASE("a problem is missing, failed, stale or tuned, whichever database says the best of it", "[nogpu]") {
  Files files;
  CHECK(files.state().state == TuningState::missing);
  CHECK_FALSE(files.state().row);

  Measurement estimate = row(kA, 900);
  estimate.rigor = Rigor::estimate;
  estimate.predicted_us = 900;
  files.databases[0]->append(estimate);
  CHECK(files.state().state == TuningState::missing);

  files.databases[0]->append(failure(kA, "dK is wrong"));
  CHECK(files.state().state == TuningState::failed);
  CHECK(files.state().why == "dK is wrong");
  files.databases[1]->append(failure(kB, "O is wrong"));  // the newer one, in another file
  CHECK(files.state().state == TuningState::failed);

  files.databases[0]->append(stale(kB, 800));
  CHECK(files.state().state == TuningState::stale);
  CHECK_THAT(files.state().why, ContainsSubstring("its kernel was another one"));
  CHECK(canonical_text(files.state().row->config) == kB);

  files.databases[1]->append(row(kA, 950));
  CHECK(files.state().state == TuningState::tuned);
  CHECK(files.state().why.empty());
  CHECK(files.state().database == (files.folder / "two.db").string());

  files.databases[0]->append(row(kB, 850));  // faster, and of now
  CHECK(files.state().row->ranking_us() == 850);
  CHECK(files.state().database == (files.folder / "one.db").string());
}

TEST_CASE("a row of now counts though a stale one stands before it", "[nogpu]") {
  Files files;
  files.databases[0]->append(row(kA, 950));
  files.databases[0]->append(stale(kB, 700));
  CHECK(files.state().state == TuningState::tuned);
  CHECK(canonical_text(files.state().row->config) == kA);
}

TEST_CASE("each GPU model has a state of its own", "[nogpu]") {
  Files files;
  files.databases[0]->append(row(kA, 950));
  Measurement other = row(kB, 800);
  other.device = "NVIDIA H100 80GB HBM3";
  files.databases[1]->append(other);
  const GpuModel h100 = {"NVIDIA H100 80GB HBM3", 132};
  CHECK(models_of(files.databases) == std::vector<GpuModel>{h100, kH200});
  CHECK(files.state(kProblem, {"NVIDIA H200", 100}).state == TuningState::missing);
  CHECK(files.state("forward bf16 b4 hq8 sq4096 d128").state == TuningState::missing);
  CHECK(files.state(kProblem, h100).state != TuningState::missing);
}

}  // namespace tuning_state_test
