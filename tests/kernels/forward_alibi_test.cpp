// Forward kernels whose scores fall with the distance from a diagonal.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Rows of a tile share what they gain, have it of their own (packed heads, mma.sync), and end in parts or promoted.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                       "sm80 q32 kv16 w2 st2 rescale10 pack-gqa"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale8 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale8 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv32 st1 exp4 overlap=within rescale8 pack-gqa scheduler=static-persistent promote2"};

// Diagonals inside, beside and far from the keys; masks that let queries see beyond theirs, and whole tiles of keys.
const RowShapes kRows = {"b2 hq4 hkv2 ",
                         {"sq7 skv5", "sq64 skv96", "sq200 skv300", "sq300 skv70", "sq1 skv700"},
                         {" alibi", " causal alibi", " causal-top-left alibi sink", " window=150,60 alibi softcap3"}};

// Numbers of other sizes: as models have them after 10^5 keys, and beside scores of some hundreds.
void check_extremes(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    ForwardCase test = case_from("forward fp16 b1 hq2 hkv1 sq65 skv300 d64 causal alibi", config);
    test.q_deviation = 100;
    check_case(devices, test);
    check_case(devices, case_from("forward bf16 b1 hq2 hkv1 sq3 skv5000 d16 causal@-3000 alibi scale1e-6", config));
  }
}

void check(Devices& devices, const Configs& configs) {
  check_rows(devices, configs, kRows);
  check_extremes(devices, configs);
}

}  // namespace

TEST_CASE("forward with ALiBi is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm80);
}

TEST_CASE("sm90 forward with ALiBi is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm90);
}

TEST_CASE("forward with ALiBi is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check(devices, kSm80);
  if (devices.spec().compute_major == 9) check(devices, kSm90);
}

}  // namespace attune::tests
