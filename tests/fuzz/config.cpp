// A config's canonical text: what is accepted is written as it is read, and judged for a problem.
#include "generator/config/kernel_config.h"

#include "generator/device/device_spec.h"
#include "generator/generate.h"
#include "tests/fuzz/fuzz_target.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const DeviceSpec device = find_device("h200");
  static const AttentionProblem problems[] = {parse_problem("forward bf16 b2 hq8 hkv2 sq1024 d128 causal"),
                                              parse_problem("backward fp16 b1 hq4 sq300 d64")};
  fuzz::accepts([&] {
    const KernelConfig config = parse_config(fuzz::text_of(data, size));
    fuzz::require(parse_config(canonical_text(config)) == config);
    for (const AttentionProblem& problem : problems) infeasibility(problem, config, device);
  });
  return 0;
}
