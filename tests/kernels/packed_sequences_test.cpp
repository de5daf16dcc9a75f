// Kernels of sequences that lie one behind the other: one to 37 of them, without rows, with one row, and of no
// multiple of any tile, among rows of NaN that are in no sequence or do not count.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generator/families/family_word.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

const Configs kSm80 = {"sm80 q64 kv32 w4 st2",
                       "sm80 q16 kv16 w1 st3 rescale10 order=tile-major",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                       "sm80 q32 kv16 w2 st2 rescale10 pack-gqa order=head-major-reversed",
                       "sm80 q16 kv16 w1 st2 pack-gqa parts=fill",
                       "sm80 q64 kv32 w4 st2 rescale10 parts3"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale8",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale8 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent order=l2-sections-reversed",
                       "sm90 q128 kv64 st2 overlap=across psmem scheduler=static-persistent order=tile-major-reversed",
                       "sm90 q64 kv32 st1 exp4 overlap=within pack-gqa ascending-keys",
                       "sm90 q64 kv32 st2 overlap=within pack-gqa parts=fill",
                       "sm90 q128 kv32 st2 rescale8 overlap=across parts3 scheduler=dynamic-persistent"};

constexpr const char* kMasks[] = {"packed",
                                  "causal packed",
                                  "causal-top-left used-top-left packed",
                                  "causal@-30 packed sink softcap2",
                                  "window=50,20 packed alibi",
                                  "window=40,open@10 used-top-left packed sink"};

const Configs kBackwardSm80 = {"sm80 q32 kv32 w2 st2",
                               "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic order=l2-sections",
                               "sm80 q32 kv32 w2 st2 dq=ordered",
                               "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic",
                               "sm80 q32 kv16 w1 st2 dq=ordered kv-grad-per-query-head order=l2-sections",
                               "sm80 q16 kv64 w4 st2 kv-grad-per-query-head"};
const Configs kBackwardSm90 = {
    "sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
    "sm90 q64 kv64 st2 dq=ordered ticket2 split-dkdv polled-loads dk-first order=l2-sections",
    "sm90 q64 kv64 st2 scheduler=dynamic-persistent dq=atomic order=l2-sections",
    "sm90 q64 kv64 st2 dq=atomic early4 kv-grad-per-query-head",
    "sm90 q64 kv64 st2 query-parts2 dq=ordered",
    "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic",
    "sm90 q80 kv64 st2 overlap=within dq-by=softmax dq=atomic dq-adds=bulk scheduler=static-persistent"};

void check_backward(Devices& devices, const Configs& configs) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* sizes : {"b1 sq70", "b4 sq300 skv260", "b37 sq700", "b5 sq3 skv900"}) {
      for (const char* mask : kMasks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        const std::string layout = number % 5 == 0 ? " bhsd" : "";
        BackwardCase test = backward_case("backward " + dtype + sizes + " hq4 hkv2 d64 " + mask + layout, config);
        test.seed = number;
        test.with_lse = number % 3 != 0;
        test.placement = number % 4 == 0 ? Placement::padded : Placement::packed;
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

void check_forward(Devices& devices, const Configs& configs) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* sizes : {"b1 sq70", "b4 sq300 skv260", "b37 sq700", "b5 sq3 skv900"}) {
      for (const char* mask : kMasks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        const std::string layout = number % 5 == 0 ? " bhsd" : "";
        ForwardCase test = case_from("forward " + dtype + sizes + " hq4 hkv2 d64 " + mask + layout, config);
        test.seed = number;
        test.placement = number % 3 == 0   ? Placement::padded
                         : number % 7 == 0 ? Placement::reversed
                                           : Placement::packed;
        // TMA takes no rows that lie backwards.
        if (test.config.family == FamilyWord::sm90 && test.placement == Placement::reversed)
          test.placement = Placement::padded;
        if (test.placement == Placement::reversed) test.problem.alignment = 2;
        test.with_lse = number % 4 != 0;
        check_case(devices, test);
      }
    }
  }
}

}  // namespace

TEST_CASE("packed sequences in forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm80);
}

TEST_CASE("packed sequences in sm90 forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm90);
}

TEST_CASE("packed sequences in backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm80);
}

TEST_CASE("packed sequences in sm90 backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(6);
  check_backward(devices, kBackwardSm90);
}

// What cu_seqlens may not be: gradients of such are anything, but tiles do not wait for turns that never come.
void check_falling_sequences(Devices& devices) {
  for (const char* config :
       {"sm80 q32 kv32 w2 st2 dq=ordered", "sm90 q64 kv64 st2 dq=ordered ticket2 split-dkdv polled-loads dk-first",
        "sm90 q64 kv64 st2 query-parts2 dq=ordered", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic order=l2-sections"}) {
    BackwardCase test = backward_case("backward bf16 b4 hq2 sq300 d64 packed", config);
    if (devices.spec().compute_major != 9 && test.config.family == FamilyWord::sm90) continue;
    test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
    BackwardData data(test);
    using Begins = std::vector<std::int32_t>;
    const Begins fall = {0, 300, 0, 300, 100}, rise = {0, 100, 150, 200, 300};
    for (const auto& [queries, keys] : {std::pair(fall, fall), std::pair(fall, rise), std::pair(rise, fall)}) {
      data.terms.set(Operand::cu_seqlens_q, queries);
      data.terms.set(Operand::cu_seqlens_kv, keys);
      INFO(config);
      for (const auto& runtime : devices.runtimes) CHECK_NOTHROW(run_backward(*runtime, test, data));
    }
  }
}
TEST_CASE("backward of packed sequences that fall ends on the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  check_falling_sequences(devices);
}
TEST_CASE("backward of packed sequences that fall ends on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_falling_sequences(devices);
}

TEST_CASE("packed sequences in forward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_forward(devices, kSm80);
}

TEST_CASE("packed sequences in sm90 forward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_forward(devices, kSm90);
}

TEST_CASE("packed sequences in backward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_backward(devices, kBackwardSm80);
}

TEST_CASE("packed sequences in sm90 backward are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_backward(devices, kBackwardSm90);
}

}  // namespace attune::tests
