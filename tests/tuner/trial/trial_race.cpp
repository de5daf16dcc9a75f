// Times that a bench takes of several configs alternately.
#include <vector>

#include "generator/families/kernel_family.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tuner/trial/trial.h"

using namespace attune;

TEST_CASE("a race times each config with wide scores in the same rounds, if it is asked to", "[gpu]") {
  const auto device = open_cuda_device(0);
  const AttentionProblem problem = parse_problem("forward bf16 b2 hq8 sq2048 d128 causal");
  const std::vector<KernelConfig> configs = {default_config(problem, device->spec()),
                                             parse_config("sm80 q64 kv64 w4 st2")};
  TrialBench bench(device, problem, 3);
  RaceOptions options;
  options.seconds = 0.1;
  options.min_rounds = 7;
  const RaceTimes narrow = bench.race(configs, options);
  REQUIRE(narrow.complaint.empty());
  REQUIRE(narrow.wide_samples_us.empty());
  REQUIRE_THAT(narrow.protocol, !ContainsSubstring("spread"));
  options.wide = true;
  const RaceTimes both = bench.race(configs, options);
  REQUIRE(both.complaint.empty());
  REQUIRE(both.samples_us.size() == 2);
  REQUIRE(both.wide_samples_us.size() == 2);
  REQUIRE(both.clocks_mhz.size() == 2);
  REQUIRE_THAT(both.protocol, ContainsSubstring("2 configs alternately, spreads 1 and 8"));
  for (std::size_t i = 0; i < 2; ++i) {
    INFO(canonical_text(configs[i]));
    REQUIRE(both.samples_us[i].size() >= 7);
    REQUIRE(both.wide_samples_us[i].size() == both.samples_us[i].size());
    REQUIRE(both.clocks_mhz[i].size() == both.samples_us[i].size());
    // The same work, however often a row maximum is raised.
    const double own = quantile(both.samples_us[i], 0.5), wide = quantile(both.wide_samples_us[i], 0.5);
    REQUIRE(wide > 0.5 * own);
    REQUIRE(wide < 3 * own);
    REQUIRE(own == Approx(quantile(narrow.samples_us[i], 0.5)).epsilon(0.3));
  }
  // The bench's own problem is what it was: outputs are checked at its scale.
  REQUIRE(bench.run(configs[0]).status == MeasurementStatus::ok);
  AttentionProblem scaled = problem;
  scaled.softmax_scale *= 2;
  REQUIRE_THAT(TrialBench(device, scaled, 3).race(configs, options).protocol, ContainsSubstring("spreads 2 and 16"));

  const AttentionProblem backward = parse_problem("backward bf16 b1 hq2 sq256 d64");
  TrialBench of_backward(device, backward, 3);
  REQUIRE_THROWS_WITH(of_backward.race({default_config(backward, device->spec())}, options),
                      ContainsSubstring("forward"));
}
