// Packed sequences with tensors of pairs: biases and attention masks by the queries and keys of each sequence, for as
// many as the longest one has, for fewer, so that some rows do not count, and for more than all have together.
#include <string>

#include "generator/families/family_word.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Pairs read where they lie, tiles of them by TMA, copied rows, blocks that are passed over, packed heads, parts.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st2 pack-gqa parts=fill",
                       "sm80 q32 kv48 w2 st1 qsmem order=tile-major-reversed rescale8"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale8 parts3",
                       "sm90 q128 kv64 st2 pst2 overlap=within scheduler=dynamic-persistent rescale8",
                       "sm90 q64 kv48 st2 pst1 pack-gqa scheduler=static-persistent qst2",
                       "sm90 q192 kv48 st1 pst3 pingpong rescale8 scheduler=dynamic-persistent qst2",
                       "sm90 q128 kv64 st2 pst2 overlap=across scheduler=static-persistent"};
const Configs kVisible = {"sm90 q64 kv64 st2 visible-blocks rescale8",
                          "sm90 q128 kv32 st2 pst2 visible-blocks overlap=within scheduler=dynamic-persistent qst2"};
const Configs kBackwardSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                               "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kBackwardSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                               "sm90 q64 kv64 st2 pst2 dq=ordered split-dkdv",
                               "sm90 q80 kv128 st2 pst2 overlap=within dq-by=softmax dq=atomic",
                               "sm90 q64 kv128 st3 pst3 overlap=queued dq=atomic scheduler=dynamic-persistent"};
const Configs kBackwardVisible = {"sm90 q64 kv64 st2 pst2 visible-blocks dq=atomic split-dkdv polled-loads",
                                  "sm90 q64 kv128 st2 visible-blocks ordered overlap=within dq=atomic early8"};

constexpr const char* kSizes[] = {"b1 sq70", "b4 sq300 skv260", "b23 sq500 skv600", "b5 sq3 skv900"};
constexpr const char* kPairs[] = {"bias=bhqk max-sq96 max-skv104",
                                  "causal bias=1hqk bias-fp32 sink max-sq190 max-skv197",
                                  "window=50,20 alibi softcap2 bias=b11k max-skv333",
                                  "attention-mask=b1qk max-sq150 max-skv1000",
                                  "causal-top-left used-top-left attention-mask=bhqk bias=11qk max-sq44 max-skv61",
                                  "attention-mask=11qk bias=1h1k max-sq700 max-skv200"};
constexpr const char* kMasked[] = {"attention-mask=b1qk max-sq150 max-skv1000",
                                   "causal attention-mask=11qk bias=1hqk max-sq280 max-skv301",
                                   "window=90,40 attention-mask=b11k sink max-skv256"};

template <typename Check, typename Words>
void for_each_case(const Configs& configs, const Words& all_words, const Check& check) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* sizes : kSizes) {
      for (const char* words : all_words) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        check(dtype + sizes + " hq4 hkv2 d64 packed " + words + (number % 5 == 0 ? " bhsd" : ""), config, number);
      }
    }
  }
}

template <typename Words>
void check_forward(Devices& devices, const Configs& configs, const Words& words) {
  for_each_case(configs, words, [&](const std::string& problem, const char* config, std::uint32_t number) {
    ForwardCase test = case_from("forward " + problem, config);
    test.seed = number;
    test.with_lse = number % 4 != 0;
    test.placement = number % 3 == 0 ? Placement::padded : Placement::packed;
    check_case(devices, test);
  });
}

// Where there is a bias its gradient is asked for by turns.
template <typename Words>
void check_backward(Devices& devices, const Configs& configs, const Words& words) {
  for_each_case(configs, words, [&](const std::string& problem, const char* config, std::uint32_t number) {
    BackwardCase test = backward_case("backward " + problem, config);
    test.seed = number;
    test.with_lse = number % 3 != 0;
    test.placement = number % 4 == 0 ? Placement::padded : Placement::packed;
    test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
    test.problem.bias_gradient = test.problem.bias != PairTensor::none && number % 5 != 0;
    check_case(devices, test);
  });
}

// Rows that 16 bytes do not divide, copied for TMA.
void check_copied(Devices& devices) {
  for (const Placement placement : {Placement::packed, Placement::padded}) {
    ForwardCase test = case_from("forward bf16 b6 hq4 hkv2 sq400 skv300 d64 packed causal bias=1hqk max-sq77 max-skv99",
                                 "sm90 q128 kv64 st2 pst2 overlap=within copied-pairs");
    test.placement = placement;
    check_case(devices, test);
    BackwardCase gradient = backward_case(
        "backward fp16 b6 hq4 hkv2 sq400 skv300 d64 packed bias=b1qk bias-gradient attention-mask=11qk max-sq77 "
        "max-skv99",
        "sm90 q64 kv128 st2 pst2 overlap=queued dq=atomic copied-pairs visible-blocks");
    gradient.pair_placement = placement;
    check_case(devices, gradient);
  }
}

}  // namespace

TEST_CASE("packed tensors of pairs in forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm80, kPairs);
}

TEST_CASE("packed tensors of pairs in sm90 forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_forward(devices, kSm90, kPairs);
  check_forward(devices, kVisible, kMasked);
}

TEST_CASE("packed tensors of pairs in backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_backward(devices, kBackwardSm80, kPairs);
}

TEST_CASE("packed tensors of pairs in sm90 backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(6);
  check_backward(devices, kBackwardSm90, kPairs);
  check_backward(devices, kBackwardVisible, kMasked);
}

TEST_CASE("copied tensors of pairs of packed sequences are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  check_copied(devices);
}

TEST_CASE("packed tensors of pairs in forward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_forward(devices, kSm80, kPairs);
}

TEST_CASE("packed tensors of pairs in backward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_backward(devices, kBackwardSm80, kPairs);
}

TEST_CASE("packed tensors of pairs in sm90 forward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major == 9) check_forward(devices, kSm90, kPairs);
}

TEST_CASE("packed tensors of pairs in sm90 backward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major == 9) check_backward(devices, kBackwardSm90, kPairs);
}

TEST_CASE("packed attention masks whose blocks are passed over, and copied pairs, are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check_forward(devices, kVisible, kMasked);
  check_backward(devices, kBackwardVisible, kMasked);
  check_copied(devices);
}

}  // namespace attune::tests
