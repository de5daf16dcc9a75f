// Kernels whose sequences have fewer rows than their tensors, as the device's memory says: whatever lies behind them.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

const Configs kForwardSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                              "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                              "sm80 q32 kv16 w2 st2 rescale10 pack-gqa"};
const Configs kForwardSm90 = {
    "sm90 q64 kv32 st2 rescale8 parts3",
    "sm90 q128 kv48 st2 qreg ordered overlap=within rescale8 scheduler=static-persistent qst2",
    "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
    "sm90 q128 kv64 st2 overlap=across psmem scheduler=static-persistent",
    "sm90 q64 kv32 st1 exp4 overlap=within pack-gqa ascending-keys"};
const Configs kBackwardSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                               "sm80 q32 kv32 w2 st2 dq=ordered", "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kBackwardSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                               "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                               "sm90 q64 kv64 st2 scheduler=dynamic-persistent dq=atomic",
                               "sm90 q64 kv64 st2 dq=atomic early4",
                               "sm90 q64 kv64 st2 fused-convert dq=atomic",
                               "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic"};

constexpr const char* kMasks[] = {"used",
                                  "causal used",
                                  "causal-top-left used-top-left",
                                  "causal@-100 used sink softcap2",
                                  "window=120,20 used",
                                  "window=40,open@10 used-top-left sink"};

// Four batch entries, so that some have no rows and others all of them.
void check_forward(Devices& devices, const Configs& configs) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv5", "sq64 skv96", "sq200 skv300", "sq1 skv700"}) {
      for (const char* mask : kMasks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        ForwardCase test = case_from("forward " + dtype + "b4 hq4 hkv2 " + lengths + " d64 " + mask, config);
        test.seed = number;
        test.placement = number % 3 == 0 ? Placement::padded : Placement::packed;
        check_case(devices, test);
      }
    }
  }
}

void check_backward(Devices& devices, const Configs& configs) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv70", "sq130 skv5", "sq200 skv260", "sq1 skv1"}) {
      for (const char* mask : kMasks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b4 hq4 hkv2 " + lengths + " d64 " + mask, config);
        test.seed = number;
        test.with_lse = number % 3 != 0;
        test.placement = number % 4 == 0 ? Placement::padded : Placement::packed;
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

}  // namespace

TEST_CASE("used lengths in forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kForwardSm80);
}

TEST_CASE("used lengths in sm90 forward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kForwardSm90);
}

TEST_CASE("used lengths in backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm80);
}

TEST_CASE("used lengths in sm90 backward are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(6);
  check_backward(devices, kBackwardSm90);
}

TEST_CASE("used lengths are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_forward(devices, kForwardSm80);
  check_backward(devices, kBackwardSm80);
  if (devices.spec().compute_major != 9) return;
  check_forward(devices, kForwardSm90);
  check_backward(devices, kBackwardSm90);
}

}  // namespace attune::tests
