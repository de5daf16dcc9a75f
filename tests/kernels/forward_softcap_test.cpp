// Forward kernels whose scores are capped: softcap tanh(scale q·k / softcap), before the mask.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                       "sm80 q32 kv16 w2 st2 rescale10 pack-gqa"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale10 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale10 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv32 st1 exp4 overlap=within rescale10 pack-gqa scheduler=static-persistent promote2"};

// A cap that no score reaches, one that most reach, and one so small that all keys of a row weigh the same.
const RowShapes kRows = {
    "b2 hq4 hkv2 ",
    {"sq7 skv5", "sq64 skv96", "sq200 skv300", "sq1 skv700"},
    {" softcap50", " causal softcap2", " causal@-100 softcap0.01", " window=150,20 softcap30 scale0.9"}};

// Scores of some thousands, which all are at the cap: tanh of them is 1.
void check_large_scores(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const double deviation : {30.0, 1000.0}) {
      ForwardCase test = case_from("forward bf16 b1 hq2 hkv1 sq65 skv300 d64 causal softcap20", config);
      test.q_deviation = deviation;
      check_case(devices, test);
    }
  }
}

void check_head_dims(Devices& devices, const char* config) {
  for (const int head_dim : {8, 40, 64, 72, 136, 256}) {
    ForwardCase test =
        case_from("forward fp16 b2 hq3 sq17 skv300 d" + std::to_string(head_dim) + " causal bhsd softcap5", config);
    test.placement = Placement::padded;
    check_case(devices, test);
  }
}

void check(Devices& devices, const Configs& configs, const char* small_config) {
  check_rows(devices, configs, kRows);
  check_large_scores(devices, configs);
  check_head_dims(devices, small_config);
}

}  // namespace

TEST_CASE("forward with a softcap is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm80, "sm80 q16 kv32 w1 st2 rescale10");
}

TEST_CASE("sm90 forward with a softcap is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm90, "sm90 q64 kv32 st1 rescale10");
}

TEST_CASE("forward with a softcap is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check(devices, kSm80, "sm80 q16 kv32 w1 st2 rescale10");
  if (devices.spec().compute_major == 9) check(devices, kSm90, "sm90 q64 kv32 st1 rescale10");
}

}  // namespace attune::tests
