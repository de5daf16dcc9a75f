// Backward kernels of heads with sinks, and the kernel of the sinks' gradient.
#include <limits>
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
                       "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic"};

// The third mask leaves rows without a key: their gradient of LSE is all that the sink gets of them.
void check_rows(Devices& devices, const Configs& configs) {
  int number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv70", "sq130 skv5", "sq200 skv260", "sq1 skv1"}) {
      for (const char* mask : {" sink", " causal sink softcap2", " causal@-100 sink", " window=120,20 sink"}) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b2 hq4 hkv2 " + lengths + " d32" + mask, config);
        test.with_lse = number % 3 != 0;
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
    for (const double near : {-std::numeric_limits<double>::infinity(), -80.0, 20.0, 3e4, 1e30}) {
      BackwardCase test = backward_case("backward bf16 b1 hq3 sq65 skv150 d64 causal@-20 sink", config);
      test.sink = near;
      test.with_lse = true;
      check_case(devices, test);
    }
  }
}

// As many rows as several loops of the kernel's threads have, in several batch entries and heads.
void check_long(Devices& devices, const std::string& config) {
  check_case(devices, backward_case("backward bf16 b3 hq2 sq1300 skv16 d16 sink", config));
}

}  // namespace

TEST_CASE("backward with sinks is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_rows(devices, kSm80);
  check_long(devices, "sm80 q64 kv32 w2 st2 dq=atomic");
}

TEST_CASE("sm90 backward with sinks is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_rows(devices, kSm90);
}

TEST_CASE("backward with sinks is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_rows(devices, kSm80);
  check_long(devices, "sm80 q64 kv32 w2 st2 dq=atomic");
  if (devices.spec().compute_major == 9) {
    check_rows(devices, kSm90);
    check_long(devices, "sm90 q64 kv64 st2 dq=atomic");
  }
}

}  // namespace attune::tests
