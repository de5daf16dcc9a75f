// Kernels that drop elements of P: which ones, all families, passes, tiles and features must agree upon with the
// oracles.
#include <string>

#include "generator/families/family_word.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Each place where P is packed, each loop, parts of keys, and promoted sums.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale10 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale10 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv80 st1 exp4 overlap=within rescale10 scheduler=static-persistent promote2"};
// Each way from P to dS: registers, shared memory, from one warpgroup to another; in order and not.
const Configs kBackwardSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                               "sm80 q32 kv64 w2 st2 dq=ordered kv-grad-per-query-head",
                               "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kBackwardSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                               "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                               "sm90 q64 kv64 st2 dq=atomic split-dkdv overlap=within dost1",
                               "sm90 q128 kv64 st1 dsst1 dq=atomic p-in-ds split-dkdv polled-loads",
                               "sm90 q64 kv128 st2 ordered overlap=queued dq=atomic scheduler=dynamic-persistent",
                               "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic",
                               "sm90 q64 kv128 st2 dq=atomic kv-grad-per-query-head"};

// Probabilities of eight and of sixteen bits, of which one leaves little and one takes little.
constexpr const char* kSizes[] = {"sq7 skv70", "sq130 skv5", "sq200 skv300", "sq1 skv700"};
constexpr const char* kTerms[] = {"dropout0.1",
                                  "causal dropout0.6 softcap2",
                                  "window=150,20 dropout0.01 sink",
                                  "causal@-100 dropout0.97 alibi",
                                  "dropout0.3 used bias=1hqk",
                                  "causal dropout0.003 packed attention-mask=b1qk"};

template <typename Check>
void for_each_case(const Configs& configs, const Check& check) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* sizes : kSizes) {
      for (const char* terms : kTerms) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        check(dtype + "b2 hq4 hkv2 " + sizes + " d" + (number % 3 == 0 ? "64 " : "32 ") + terms, config, number);
      }
    }
  }
}

void check_forward(Devices& devices, const Configs& configs) {
  for_each_case(configs, [&](const std::string& problem, const char* config, std::uint32_t number) {
    ForwardCase test = case_from("forward " + problem, config);
    if (test.config.cluster > 1 && test.problem.has_used_lengths()) return;  // which do not go together
    test.seed = number;
    test.with_lse = number % 4 != 0;
    test.placement = number % 3 == 0 ? Placement::padded : Placement::packed;
    check_case(devices, test);
  });
}

void check_backward(Devices& devices, const Configs& configs) {
  for_each_case(configs, [&](const std::string& problem, const char* config, std::uint32_t number) {
    BackwardCase test = backward_case("backward " + problem, config);
    test.seed = number;
    test.with_lse = number % 3 != 0;
    test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
    test.problem.bias_gradient = test.problem.bias != PairTensor::none && number % 5 != 0;
    check_case(devices, test);
  });
}

void check_head_dims(Devices& devices, const char* forward, const char* backward, const char* backward_of_wide) {
  for (const int head_dim : {8, 40, 72, 128, 256}) {
    const std::string problem = "b1 hq3 sq70 skv150 d" + std::to_string(head_dim) + " causal bhsd dropout0.2";
    check_case(devices, case_from("forward fp16 " + problem, forward));
    check_case(devices, backward_case("backward fp16 " + problem, head_dim > 128 ? backward_of_wide : backward));
  }
}

}  // namespace

TEST_CASE("forward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm80);
}

TEST_CASE("sm90 forward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm90);
}

TEST_CASE("backward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm80);
  check_head_dims(devices, "sm80 q16 kv32 w1 st2 rescale10", "sm80 q32 kv32 w2 st2 dq=atomic",
                  "sm80 q32 kv32 w4 st1 query-warps2 dq=atomic");
}

TEST_CASE("sm90 backward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm90);
  check_head_dims(devices, "sm90 q64 kv32 st1 rescale10", "sm90 q64 kv128 st2 dq=atomic",
                  "sm90 q64 kv64 st2 dost1 dq=atomic split-dkdv");
}

TEST_CASE("dropout is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_forward(devices, kSm80);
  check_backward(devices, kBackwardSm80);
}

TEST_CASE("sm90 dropout is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check_forward(devices, kSm90);
  check_backward(devices, kBackwardSm90);
}

}  // namespace attune::tests
