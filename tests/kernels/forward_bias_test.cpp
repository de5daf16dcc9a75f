// Forward kernels with tensors of pairs: biases and attention masks.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Rows of a tile have one head or several, and end in parts or promoted.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8",
                       "sm80 q32 kv16 w2 st2 rescale10 pack-gqa"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale8 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale8 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv32 st1 exp4 overlap=within rescale8 pack-gqa scheduler=static-persistent promote2",
                       "sm90 q128 kv80 st2 pst1 overlap=within rescale8 scheduler=dynamic-persistent",
                       "sm90 q64 kv48 st2 pst2 pack-gqa parts3",
                       "sm90 q192 kv48 st1 pst3 pingpong rescale8 scheduler=static-persistent qst2",
                       "sm90 q128 kv64 st2 pst2 overlap=across cluster2 scheduler=dynamic-persistent"};

// Rows of lengths that 16 bytes divide, or do not, and of one element; with masks that hide rows and columns of the
// tensors.
const RowShapes kRows = {
    "b2 hq4 hkv2 ",
    {"sq7 skv5", "sq64 skv96", "sq200 skv192", "sq200 skv197", "sq300 skv70", "sq1 skv577", "sq70 skv1"},
    {" bias=bhqk", " causal bias=1hqk bias-fp32 sink", " window=150,60 bias=b11k alibi softcap3",
     " attention-mask=b11k", " causal attention-mask=bhqk bias=11qk", " causal-top-left attention-mask=11qk sink"}};

void check(Devices& devices, const Configs& configs) {
  check_rows(devices, configs, kRows);
  // Beside scores of some hundreds, where the largest ones are subtracted first.
  for (const char* config : configs) {
    ForwardCase test = case_from("forward fp16 b1 hq2 hkv1 sq65 skv300 d64 causal bias=1hqk", config);
    test.q_deviation = 100;
    check_case(devices, test);
    test = case_from("forward bf16 b1 hq2 hkv1 sq65 skv300 d64 bias=b1qk bias-fp32 attention-mask=1h1k", config);
    test.q_deviation = 30;
    test.placement = Placement::padded;
    check_case(devices, test);
  }
}

// Rows that 16 bytes do not divide, copied for TMA: packed ones, and padded ones, of which a tensor map can be made, so
// that nothing is copied.
void check_copied_rows(Devices& devices) {
  struct Row {
    const char *words, *config;
  };
  constexpr Row kRows[] = {
      {"b2 hq4 hkv2 sq200 skv197 d64 bias=1hqk", "sm90 q128 kv64 st2 pst2 overlap=within copied-pairs"},
      {"b2 hq2 sq70 skv577 d16 causal attention-mask=bhqk", "sm90 q64 kv128 st2 pst1 copied-pairs"},
      {"b1 hq2 sq130 skv49 d32 bias=bhqk bias-fp32 attention-mask=b11k sink",
       "sm90 q128 kv48 st2 pst1 scheduler=dynamic-persistent copied-pairs"},
      {"b2 hq4 hkv1 sq20 skv300 d64 bias=b1qk alibi softcap3", "sm90 q64 kv48 st2 pst2 pack-gqa parts3 copied-pairs"},
      {"b2 hq2 sq300 skv200 d64 used bias=11qk attention-mask=b1qk",
       "sm90 q192 kv64 st2 pst2 visible-blocks copied-pairs"},
      {"b1 hq2 sq1 skv5 d64 bias=bh1k", "sm90 q64 kv32 st2 pst1 copied-pairs"},
  };
  for (const Row& row : kRows) {
    for (const Placement placement : {Placement::packed, Placement::padded}) {
      ForwardCase test = case_from("forward bf16 " + std::string(row.words), row.config);
      test.placement = placement;
      check_case(devices, test);
    }
  }
}

}  // namespace

TEST_CASE("forward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check(devices, kSm80);
}

TEST_CASE("sm90 forward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check(devices, kSm90);
}

TEST_CASE("forward with copied tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(2);
  check_copied_rows(devices);
}

TEST_CASE("forward with tensors of pairs is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check(devices, kSm80);
}

TEST_CASE("sm90 forward with tensors of pairs is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check(devices, kSm90);
  check_copied_rows(devices);
}

}  // namespace attune::tests
