// Kernels that fill a GPU: warpgroups then wait for one another and for memory in ways that small problems never show.
#include <string>
#include <utility>
#include <vector>

#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tuner/trial/trial.h"

using namespace attune;

TEST_CASE("sm90 backward is right on a GPU that it fills, however its buffers are filled and left", "[gpu]") {
  // With the words that decide when a buffer is filled anew, and who leaves it when.
  const std::vector<std::pair<const char*, std::vector<std::string>>> cases = {
      {"backward bf16 b8 hq8 sq2048 d256",
       {"sm90 q64 kv64 st2", "sm90 q64 kv64 st2 polled-loads", "sm90 q64 kv64 st2 dsst1 polled-loads",
        "sm90 q64 kv64 st2 overlap=within polled-loads", "sm90 q64 kv64 st2 dost1 dsst1 overlap=within polled-loads",
        "sm90 q64 kv64 st2 polled-loads fused-convert", "sm90 q64 kv64 st1 polled-loads",
        "sm90 q64 kv64 st2 scheduler=static-persistent polled-loads",
        "sm90 q64 kv64 st2 dsst1 cluster2 polled-loads p-in-ds"}},
      {"backward bf16 b8 hq16 sq2048 d128 causal",
       {"sm90 q64 kv128 st3 ordered overlap=within", "sm90 q64 kv128 st2 overlap=queued polled-loads",
        "sm90 q64 kv128 st2 polled-loads", "sm90 q64 kv128 st2 overlap=within cluster2 polled-loads",
        "sm90 q64 kv128 st3 overlap=queued scheduler=static-persistent"}},
      {"backward fp16 b8 hq32 sq2048 d64",
       {"sm90 q128 kv128 st3 ordered overlap=within dsst1", "sm90 q128 kv128 st2 ordered overlap=queued polled-loads",
        "sm90 q64 kv128 st2 polled-loads fused-convert", "sm90 q64 kv64 st2 cta2"}}};
  const auto device = open_cuda_device(0);
  if (device->spec().compute_major != 9) {
    WARN("skipped: " << device->spec().name << " is no Hopper GPU");
    return;
  }
  for (const auto& [text, configs] : cases) {
    const AttentionProblem problem = parse_problem(text);
    for (const std::uint64_t seed : {1, 2}) {
      TrialBench bench(device, problem, seed);
      for (const std::string& words : configs) {
        KernelConfig config = parse_config(words + " dq=atomic");
        config.split_dkdv = problem.head_dim > 128;
        INFO(text << " | " << canonical_text(config) << " | seed " << seed);
        REQUIRE(infeasibility(problem, config, device->spec()).empty());
        for (const OutputErrors& output : bench.check(*bench.prepare(config))) CHECK(output.complaint == "");
      }
    }
  }
}
