// Lengths that a call says: those that are checked are random, those that are timed the distribution's.
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tuner/trial/trial.h"

using namespace attune;

TEST_CASE("backward is checked and timed with a forward of its own lengths", "[gpu]") {
  const auto device = open_cuda_device(0);
  for (const char* text :
       {"backward bf16 b5 hq4 hkv2 sq3000 d64 causal packed", "backward bf16 b4 hq4 sq1000 d128 causal used",
        "forward bf16 b5 hq4 sq3000 d64 packed", "forward bf16 b5 hq4 sq3000 d64 packed bias=bhqk max-sq900 max-skv900",
        "backward bf16 b5 hq4 hkv2 sq3000 d64 causal packed bias=1hqk bias-gradient "
        "attention-mask=b1qk max-sq900 max-skv904"}) {
    const AttentionProblem problem = parse_problem(text);
    const KernelConfig config = default_config(problem, device->spec());
    INFO(text << " | " << canonical_text(config));
    TrialBench bench(device, problem, 3);
    // A trial checks and then times; what it leaves must be found right once more.
    for (int time = 0; time < 2; ++time) {
      const Measurement m = bench.run(config);
      CHECK(m.reason == "");
      CHECK(m.status == MeasurementStatus::ok);
      CHECK(m.samples_us.size() >= 5);
    }
  }
}
