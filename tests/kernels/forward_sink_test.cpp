// Forward kernels whose heads have sinks: a score without a value, which counts in the sum of each row.
#include <limits>
#include <string>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Each way in which rows end: by the kernel itself, packed, promoted, and by either kernel that meets the parts.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                       "sm80 q32 kv16 w2 st2 rescale10 pack-gqa"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale8 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale8 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv32 st1 exp4 overlap=within rescale8 pack-gqa scheduler=static-persistent promote2"};

// The third mask leaves rows without a key, which have the sink alone.
const RowShapes kRows = {"b2 hq4 hkv2 ",
                         {"sq7 skv5", "sq64 skv96", "sq200 skv300", "sq1 skv700"},
                         {" sink", " causal sink", " causal@-100 sink", " window=150,20 sink softcap3 scale0.9"}};

// Sinks that are nothing beside the scores, equal to them and everything; and scores of some hundreds.
void check_extremes(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const double near : {-std::numeric_limits<double>::infinity(), -1e30, -80.0, 15.0, 80.0, 3e4, 1e30}) {
      ForwardCase test = case_from("forward bf16 b1 hq2 hkv1 sq65 skv300 d64 causal@-20 sink", config);
      test.sink = near;
      check_case(devices, test);
    }
    for (const double near : {-300.0, 300.0}) {
      ForwardCase test = case_from("forward fp16 b1 hq2 hkv1 sq65 skv300 d64 causal sink", config);
      test.q_deviation = 100;
      test.sink = near;
      check_case(devices, test);
    }
  }
}

void check(Devices& devices, const Configs& configs) {
  check_rows(devices, configs, kRows);
  check_extremes(devices, configs);
}

}  // namespace

TEST_CASE("forward with sinks is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm80);
}

TEST_CASE("sm90 forward with sinks is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check(devices, kSm90);
}

TEST_CASE("forward with sinks is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check(devices, kSm80);
  if (devices.spec().compute_major == 9) check(devices, kSm90);
}

}  // namespace attune::tests
