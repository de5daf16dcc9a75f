// Backward kernels with tensors of pairs: biases and attention masks.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

const Configs kSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                       "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                       "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                       "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic",
                       "sm90 q64 kv128 st2 pst2 ordered overlap=within dq=atomic early8",
                       "sm90 q64 kv64 st2 pst2 dq=ordered split-dkdv",
                       "sm90 q128 kv64 st3 pst3 overlap=queued dq=atomic scheduler=dynamic-persistent polled-loads"};

void check_rows(Devices& devices, const Configs& configs) {
  int number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv70", "sq130 skv5", "sq197 skv256", "sq400 skv151"}) {
      for (const char* words :
           {" bias=bhqk bias-gradient", " causal bias=1hqk bias-fp32 bias-gradient softcap2",
            " attention-mask=b11k causal-top-left", " window=120,60 bias=11qk alibi softcap3",
            " attention-mask=bhqk bias=b11k bias-fp32 bias-gradient used sink", " bias=1h1k bias-gradient"}) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b2 hq4 hkv2 " + lengths + " d32" + words, config);
        test.with_lse = number % 3 != 0;
        test.seed = static_cast<std::uint64_t>(number);
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

}  // namespace

TEST_CASE("backward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_rows(devices, kSm80);
}

TEST_CASE("sm90 backward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_rows(devices, kSm90);
}

// Sums over batch entries, heads and queries have a fixed order, whatever runs first.
TEST_CASE("the gradient of a bias has the same bits each time, on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  for (const char* bias : {"bhqk", "1hqk", "b11k", "111k"}) {
    BackwardCase test = backward_case(
        "backward bf16 b4 hq4 hkv2 sq500 skv700 d64 bias=" + std::string(bias) + " bias-gradient deterministic",
        "sm80 q64 kv64 w4 st2");
    const BackwardData data(test);
    const BackwardResult first = run_backward(*devices.runtimes[0], test, data);
    for (int i = 1; i < 200; ++i) REQUIRE(run_backward(*devices.runtimes[0], test, data).d_bias == first.d_bias);
  }
}

TEST_CASE("backward with tensors of pairs is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_rows(devices, kSm80);
  if (devices.spec().compute_major == 9) check_rows(devices, kSm90);
}

}  // namespace attune::tests
