// Forward kernels that split the keys of their tiles, and the kernel that combines the parts.
#include <string>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// A workspace begins as NaN in all of these: what a part does not write may not reach O.
const Configs kParts = {"sm80 q64 kv32 w4 st2 parts2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill",
                        "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale10 parts5"};
const Configs kPartsSm90 = {
    "sm90 q64 kv32 st2 rescale10 parts4",
    "sm90 q64 kv48 st1 overlap=within rescale10 parts=fill",
    "sm90 q128 kv32 st2 rescale10 qst2 ordered overlap=across scheduler=dynamic-persistent parts2",
    "sm90 q192 kv32 st2 order=head-major-reversed rescale10 pingpong scheduler=static-persistent parts3",
    "sm90 q128 kv32 st2 order=l2-sections-reversed rescale10 overlap=within psmem cluster2 parts7",
};
const Configs kPackedParts = {"sm80 q16 kv16 w1 st3 rescale10 parts=fill pack-gqa",
                              "sm80 q64 kv32 w2 st2 order=tile-major-reversed rescale10 parts3 pack-gqa"};
const Configs kPackedPartsSm90 = {
    "sm90 q64 kv64 st2 rescale10 overlap=within pack-gqa parts=fill",
    "sm90 q128 kv32 st2 order=tile-major-reversed rescale10 qst2 overlap=across scheduler=static-persistent pack-gqa "
    "parts3"};

const std::vector<std::string> kMasks = {"", " causal", " causal@-100", " window=150,20"};
const RowShapes kRows = {
    "b2 hq4 hkv2 ", {"sq1 skv700", "sq7 skv5", "sq64 skv700", "sq200 skv300", "sq200 skv1"}, kMasks};
const RowShapes kFurtherRows = {"b2 hq4 hkv2 ", {"sq200 skv700"}, kMasks};
// Eight heads share the rows of a tile, so that an eighth of the queries fills as many tiles.
const RowShapes kPackedRows = {"b2 hq16 hkv2 ",
                               {"sq1 skv700", "sq7 skv5", "sq8 skv700", "sq25 skv300", "sq25 skv1"},
                               {"", " causal", " causal@-12", " window=150,20"}};
const RowShapes kFurtherPackedRows = {"b2 hq16 hkv2 ", {"sq64 skv700", "sq200 skv700", "sq200 skv1"}, kMasks};

// Rows of one chunk and of 32, and numbers of chunks that are no power of two; tensors of other layouts and alignments.
void check_head_dims(Devices& devices, const char* config, bool unaligned) {
  for (const int head_dim : {8, 40, 64, 72, 136, 256}) {
    ForwardCase test =
        case_from("forward fp16 b2 hq3 sq17 skv300 d" + std::to_string(head_dim) + " causal bhsd", config);
    test.placement = Placement::padded;
    check_case(devices, test);
    if (!unaligned) continue;
    test.problem.alignment = 2;
    test.placement = Placement::reversed;
    check_case(devices, test);
  }
}

// One kernel for keys that grow: more parts with each, whose number is an argument.
void check_growing_keys(Devices& devices, const char* config) {
  for (const std::int64_t keys : {1, 2, 127, 128, 129, 255, 256, 257, 400, 900})
    check_case(devices, case_from("forward bf16 b1 hq4 hkv2 sq1 skv" + std::to_string(keys) + " d64 causal", config));
}

// Scores of some thousands: the weights of the parts leave hardly any to most of them.
void check_large_scores(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const double deviation : {0.0, 30.0, 1000.0}) {
      ForwardCase test = case_from("forward bf16 b1 hq2 sq65 skv300 d64 causal", config);
      test.q_deviation = deviation;
      check_case(devices, test);
    }
  }
}

void check_sm80(Devices& devices) {
  check_rows(devices, kParts, kRows);
  check_head_dims(devices, "sm80 q16 kv32 w1 st2 rescale10 parts3", true);
  check_growing_keys(devices, "sm80 q16 kv32 w1 st2 rescale10 parts=fill");
  check_large_scores(devices, kParts);
}

void check_sm90(Devices& devices) {
  check_rows(devices, kPartsSm90, kRows);
  check_head_dims(devices, "sm90 q64 kv32 st2 rescale10 parts3", false);
  check_large_scores(devices, kPartsSm90);
}

void check_packed(Devices& devices, const Configs& configs) {
  check_rows(devices, configs, kPackedRows);
  check_growing_keys(devices, configs.front());
}

void check_further_sm80(Devices& devices) {
  check_rows(devices, kParts, kFurtherRows);
  check_rows(devices, kPackedParts, kFurtherPackedRows);
}

void check_further_sm90(Devices& devices) {
  check_rows(devices, kPartsSm90, kFurtherRows);
  check_rows(devices, kPackedPartsSm90, kFurtherPackedRows);
}

}  // namespace

TEST_CASE("forward with parts of the keys is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_sm80(devices);
}

TEST_CASE("sm90 forward with parts of the keys is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_sm90(devices);
}

TEST_CASE("forward with parts of the keys is right in all modes of the emulator: packed heads", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_packed(devices, kPackedParts);
}

TEST_CASE("sm90 forward with parts of the keys is right in all modes of the emulator: packed heads", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_packed(devices, kPackedPartsSm90);
}

TEST_CASE("forward with parts of the keys is right in all modes of the emulator: more queries and keys",
          "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_further_sm80(devices);
}

TEST_CASE("sm90 forward with parts of the keys is right in all modes of the emulator: more queries and keys",
          "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_further_sm90(devices);
}

TEST_CASE("forward with parts of the keys is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_sm80(devices);
  check_packed(devices, kPackedParts);
  check_further_sm80(devices);
  check_case(devices,
             case_from("forward bf16 b64 hq32 hkv8 sq1 skv4096 d128", "sm80 q16 kv32 w1 st2 rescale10 pack-gqa"));
  check_case(devices, case_from("forward bf16 b2 hq8 hkv2 sq130 skv9001 d128 causal",
                                "sm80 q64 kv64 w4 st2 rescale10 parts=fill"));
}

TEST_CASE("sm90 forward with parts of the keys is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_sm90(devices);
  check_packed(devices, kPackedPartsSm90);
  check_further_sm90(devices);
  for (const char* config : {"sm90 q128 kv128 st2 rescale10 overlap=within parts=fill",
                             "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill"}) {
    check_case(devices, case_from("forward bf16 b1 hq8 hkv1 sq512 skv8192 d128", config));
    check_case(devices, case_from("forward bf16 b1 hq32 hkv4 sq1 skv8191 d128 causal", config));
  }
}

}  // namespace attune::tests
