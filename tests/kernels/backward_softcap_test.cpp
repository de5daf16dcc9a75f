// Backward kernels whose scores are capped: dS has the derivative of the tanh as a factor.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Each way from P to dS: registers, shared memory, from one warpgroup to another; in order and not.
const Configs kSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                       "sm80 q32 kv64 w2 st2 dq=ordered kv-grad-per-query-head",
                       "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                       "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                       "sm90 q64 kv64 st2 dq=atomic split-dkdv overlap=within dost1",
                       "sm90 q128 kv64 st1 dsst1 dq=atomic p-in-ds split-dkdv polled-loads",
                       "sm90 q64 kv128 st2 ordered overlap=queued dq=atomic scheduler=dynamic-persistent",
                       "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic"};

// A cap that few scores reach, one that most reach, and one so small that all keys of a row weigh the same.
void check_rows(Devices& devices, const Configs& configs) {
  int number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv70", "sq130 skv5", "sq200 skv260"}) {
      for (const char* mask :
           {" softcap50", " causal softcap2", " causal@-100 softcap0.01", " window=120,20 softcap30 scale0.9"}) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b2 hq4 hkv2 " + lengths + " d32" + mask, config);
        test.with_lse = number % 3 == 0;
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

// Scores far beyond the cap: the tanh is 1 but for what rounding leaves, and the gradients are next to nothing.
void check_large_scores(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const double loudness : {3.0, 30.0}) {
      BackwardCase test = backward_case("backward bf16 b1 hq2 hkv1 sq65 skv150 d64 causal softcap20", config);
      test.loudness = loudness;
      check_case(devices, test);
    }
  }
}

void check_head_dims(Devices& devices, const std::string& config, const std::string& config_of_wide) {
  for (const int head_dim : {8, 40, 72, 128, 136, 256}) {
    BackwardCase test =
        backward_case("backward fp16 b1 hq3 sq70 skv150 d" + std::to_string(head_dim) + " causal bhsd softcap1",
                      head_dim > 128 ? config_of_wide : config);
    test.placement = Placement::padded;
    check_case(devices, test);
  }
}

void check_sm80(Devices& devices) {
  check_rows(devices, kSm80);
  check_large_scores(devices, kSm80);
  check_head_dims(devices, "sm80 q32 kv32 w2 st2 dq=atomic", "sm80 q32 kv32 w4 st1 query-warps2 dq=atomic");
}

void check_sm90(Devices& devices) {
  check_rows(devices, kSm90);
  check_large_scores(devices, kSm90);
  check_head_dims(devices, "sm90 q64 kv128 st2 dq=atomic", "sm90 q64 kv64 st2 dost1 dq=atomic split-dkdv");
  check_case(devices, backward_case("backward bf16 hq2 hkv1 sq130 skv260 d128 causal softcap1",
                                    "sm90 q64 kv128 st2 cluster2 dq=atomic"));
}

}  // namespace

TEST_CASE("backward with a softcap is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_sm80(devices);
}

TEST_CASE("sm90 backward with a softcap is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_sm90(devices);
}

TEST_CASE("backward with a softcap is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_sm80(devices);
  if (devices.spec().compute_major == 9) check_sm90(devices);
}

}  // namespace attune::tests
