// Forward kernels whose sums over long rows leave the tensor cores' accumulators.
#include <string>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// A workspace begins as NaN in all of these: only what a tile itself left there may reach O.
const Configs kPromoted = {"sm80 q64 kv32 w4 st2 promoted", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                           "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale10 promoted"};
const Configs kPackedPromoted = {"sm80 q32 kv16 w2 st2 rescale10 promoted pack-gqa"};
const Configs kPromotedSm90 = {
    "sm90 q64 kv32 st2 rescale10 scheduler=static-persistent promote1",
    "sm90 q64 kv48 st1 overlap=within rescale10 scheduler=static-persistent cta2 promote2 parts2",
    "sm90 q128 kv32 st2 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent promote3",
    "sm90 q192 kv32 st2 order=head-major-reversed rescale10 pingpong scheduler=static-persistent promote2",
    "sm90 q128 kv32 st2 order=l2-sections-reversed overlap=within psmem cluster2 scheduler=static-persistent promote4",
};
const Configs kPackedPromotedSm90 = {
    "sm90 q64 kv32 st2 rescale10 overlap=within scheduler=static-persistent pack-gqa promote2",
    "sm90 q128 kv32 st2 qst2 scheduler=dynamic-persistent pack-gqa parts3 promote1"};

// Rows that end before their first promotion, at one, and behind several.
const std::vector<std::string> kMasks = {"", " causal", " causal@-100", " window=150,20"};
const RowShapes kRows = {"b2 hq4 hkv2 ", {"sq7 skv5", "sq64 skv96", "sq200 skv300", "sq1 skv700"}, kMasks};
const RowShapes kFurtherRows = {"b2 hq4 hkv2 ", {"sq200 skv700"}, kMasks};
// Eight heads share the rows of a tile, so that an eighth of the queries fills as many tiles.
const RowShapes kPackedRows = {"b2 hq16 hkv2 ",
                               {"sq7 skv5", "sq8 skv96", "sq25 skv300", "sq1 skv700"},
                               {"", " causal", " causal@-12", " window=150,20"}};
const RowShapes kFurtherPackedRows = {"b2 hq16 hkv2 ", {"sq64 skv96", "sq200 skv700"}, kMasks};

// Rows of one chunk and of 32, and an odd number of chunks.
void check_head_dims(Devices& devices, const char* config) {
  for (const int head_dim : {8, 40, 64, 72, 136, 256}) {
    ForwardCase test =
        case_from("forward fp16 b2 hq3 sq17 skv300 d" + std::to_string(head_dim) + " causal bhsd", config);
    test.placement = Placement::padded;
    check_case(devices, test);
  }
}

// Scores of some thousands: what left before weighs nothing, or what comes after.
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
  check_rows(devices, kPromoted, kRows);
  check_head_dims(devices, "sm80 q16 kv32 w1 st2 rescale10 promoted");
  check_large_scores(devices, kPromoted);
  check_rows(devices, kPackedPromoted, kPackedRows);
}

void check_sm90(Devices& devices) {
  check_rows(devices, kPromotedSm90, kRows);
  check_head_dims(devices, "sm90 q64 kv32 st1 rescale10 scheduler=static-persistent promote2");
  check_large_scores(devices, kPromotedSm90);
  check_rows(devices, kPackedPromotedSm90, kPackedRows);
}

void check_further_sm80(Devices& devices) {
  check_rows(devices, kPromoted, kFurtherRows);
  check_rows(devices, kPackedPromoted, kFurtherPackedRows);
}

void check_further_sm90(Devices& devices) {
  check_rows(devices, kPromotedSm90, kFurtherRows);
  check_rows(devices, kPackedPromotedSm90, kFurtherPackedRows);
}

// Rows of a million keys: right with promoted sums, and wrong without, so that they are known to be what does it. Their
// data are made once: that takes longer than all launches.
void check_million_keys(Devices& devices, const Configs& promoted, const char* plain) {
  ForwardCase test = case_from("forward fp16 b1 hq1 sq4 skv1048576 d64", plain);
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  const auto complaint_about = [&](const char* config) {
    test.config = parse_config(config);
    return complaint(test, data, expected, run_forward(*devices.runtimes[0], test, data));
  };
  for (const char* config : promoted) {
    INFO(config);
    CHECK(complaint_about(config) == "");
  }
  INFO(plain);
  CHECK(complaint_about(plain) != "");
}

}  // namespace

TEST_CASE("forward with promoted sums is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_sm80(devices);
}

TEST_CASE("sm90 forward with promoted sums is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(9);
  check_sm90(devices);
}

TEST_CASE("forward with promoted sums is right in all modes of the emulator: more queries and keys",
          "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_further_sm80(devices);
}

TEST_CASE("sm90 forward with promoted sums is right in all modes of the emulator: more queries and keys",
          "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_further_sm90(devices);
}

TEST_CASE("forward with promoted sums is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_sm80(devices);
  check_further_sm80(devices);
  check_case(devices, case_from("forward bf16 b2 hq8 hkv2 sq130 skv9001 d128 causal",
                                "sm80 q128 kv64 w8 st2 rescale10 promoted"));
  check_million_keys(devices, {"sm80 q16 kv64 w1 st3 promoted", "sm80 q64 kv128 w4 st2 rescale10 promoted"},
                     "sm80 q64 kv128 w4 st2 rescale10");
}

TEST_CASE("sm90 forward with promoted sums is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_sm90(devices);
  check_further_sm90(devices);
  for (const char* config :
       {"sm90 q128 kv128 st2 rescale10 qst2 ordered overlap=within scheduler=static-persistent promote8",
        "sm90 q192 kv64 st2 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent promote16"})
    check_case(devices, case_from("forward bf16 b1 hq4 hkv1 sq400 skv8192 d128 causal", config));
  check_million_keys(devices,
                     {"sm90 q64 kv128 st2 rescale10 overlap=within scheduler=static-persistent promote512",
                      "sm90 q128 kv64 st2 rescale10 scheduler=dynamic-persistent promote1024"},
                     "sm90 q64 kv128 st2 rescale10 overlap=within scheduler=static-persistent");
}

}  // namespace attune::tests
