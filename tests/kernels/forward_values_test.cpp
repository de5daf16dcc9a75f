// What the numbers in Q, K and V may be: how large scores are, how they leap from key to key.
#include <cmath>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// One for each type that a config serves, each config and each mask.
std::vector<ForwardCase> cases_of_both_types(const Configs& configs, const std::string& shape,
                                             const std::vector<const char*>& masks) {
  std::vector<ForwardCase> cases;
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* config : configs) {
      for (const char* mask : masks)
        cases.push_back(case_from(std::string("forward ") + dtype + " " + shape + mask, config));
    }
  }
  return cases;
}

// Scores to +-1e4: exponentials of differences of large numbers.
const Configs kLargeMagnitudes = {"sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 rescale10"};
const Configs kLargeMagnitudesSm90 = {"sm90 q64 kv64 st2", "sm90 q128 kv64 st2 rescale10 overlap=within",
                                      "sm90 q64 kv32 st2 rescale10", "sm90 q64 kv64 st2 exp4",
                                      "sm90 q64 kv32 st2 rescale10 exp8"};
void check_large_magnitudes(Devices& devices, const Configs& configs) {
  for (ForwardCase test : cases_of_both_types(configs, "b1 hq2 sq129 skv200 d64", {"", " causal"})) {
    // scale * q k has this deviation: with the first the largest of 26000 scores lie near +-1e4.
    for (const double deviation : {2500.0, 30.0}) {
      test.q_deviation = deviation;
      check_case(devices, test);
    }
  }
}

// One key whose scores leap far beyond the others', met early or late in the walk; and rows whose scores are all equal.
struct Leap {
  std::int64_t key;
  double loudness;
};
const Configs kLeapsSm90 = {"sm90 q64 kv32 st2 rescale10",
                            "sm90 q128 kv32 st2 rescale10 ordered overlap=within scheduler=dynamic-persistent",
                            "sm90 q64 kv32 st2 rescale10 exp8", "sm90 q64 kv32 st2 rescale10 exp4",
                            "sm90 q128 kv32 st2 rescale10 overlap=within psmem"};
void check_leaps(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal"}) {
      // 150 keys: the walk begins with key 149. A loudness of 14 leaps by some 2^20 to 2^60, of 200 beyond 2^200.
      for (const Leap& leap : {Leap{3, 14}, {3, 200}, {70, 200}, {149, 200}, {149, 14}}) {
        ForwardCase test = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
        test.loud_key = leap.key;
        test.loudness = leap.loudness;
        check_case(devices, test);
      }
      ForwardCase equal = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
      equal.q_deviation = 0;
      check_case(devices, equal);
    }
  }
}

// Scores that are all below zero, or all above: row maxima that are negative, and that grow by much between blocks.
const Configs kShiftedScores = {"sm80 q64 kv32 w4 st2", "sm80 q64 kv32 w4 st2 rescale10"};
const Configs kShiftedScoresSm90 = {"sm90 q64 kv32 st2", "sm90 q128 kv32 st2 rescale10 overlap=within",
                                    "sm90 q64 kv48 st2 rescale4 exp4",
                                    "sm90 q128 kv32 st2 rescale10 qst2 overlap=across scheduler=dynamic-persistent",
                                    "sm90 q128 kv32 st2 rescale10 pingpong"};
void check_shifted_scores(Devices& devices, const Configs& configs) {
  for (ForwardCase test : cases_of_both_types(configs, "b1 hq1 sq129 skv200 d64", {"", " causal", " window=70,0"})) {
    for (const double shift : {-1000.0, -60.0, 300.0}) {
      for (const double deviation : {1.0, 8.0}) {
        test.shift = shift;
        test.q_deviation = deviation;
        check_case(devices, test);
      }
    }
  }
}

// V near the largest of bf16: products with V overflow only where the sum of V itself does, although row_max follows
// the scores with a delay.
const Configs kLargeValuesSm90 = {"sm90 q64 kv32 st2 rescale10", "sm90 q128 kv32 st2 rescale10 overlap=within exp4",
                                  "sm90 q64 kv32 st2 rescale4"};
void check_large_values(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal"}) {
      // The walk begins with the last key. The loud one's scores exceed those by up to 2^30.
      for (const double loudness : {1.0, 3.0, 8.0}) {
        ForwardCase test = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
        test.loud_key = 3;
        test.loudness = loudness;
        test.v_exponent = 118;
        check_case(devices, test);
      }
    }
  }
}

// Scores of any size: where rounding c m would change exponents, where it would make P 0 or infinite, and where c m is
// beyond fp32. A scale of 2^-8 keeps the last bits of scores near 2^30 apart by half a unit.
struct HugeScores {
  float scale;
  double size;  // of q k
};
constexpr HugeScores kScoresOfAnySize[] = {{0x1p-8f, 0x1p25}, {0x1p-8f, 0x1p30}, {0x1p-8f, -0x1p30}, {0x1p-3f, 0x1p16},
                                           {0x1p-3f, 0x1p30}, {0x1p-3f, 0x1p60}, {11.5f, 0x1p124},   {11.5f, -0x1p124}};
const Configs kHugeScores = {"sm80 q64 kv64 w4 st2", "sm80 q64 kv32 w4 st2 rescale10 parts3",
                             "sm80 q32 kv32 w2 st2 rescale10 pack-gqa"};
const Configs kHugeScoresSm90 = {"sm90 q64 kv32 st2",
                                 "sm90 q64 kv32 st2 rescale10 exp8",
                                 "sm90 q128 kv32 st2 rescale10 overlap=within psmem",
                                 "sm90 q128 kv32 st2 rescale10 overlap=across scheduler=dynamic-persistent exp4",
                                 "sm90 q128 kv32 st2 rescale10 pingpong",
                                 "sm90 q64 kv32 st2 rescale10 overlap=within pack-gqa parts3"};
void check_huge_scores(Devices& devices, const Configs& configs) {
  for (ForwardCase test : cases_of_both_types(configs, "b1 hq2 hkv1 sq70 skv150 d64", {" causal"})) {
    for (const HugeScores& scores : kScoresOfAnySize) {
      if (test.problem.dtype == DataType::fp16 && std::fabs(scores.size) > 0x1p30) continue;
      test.problem.softmax_scale = scores.scale;
      test.data = {ScorePattern::huge, scores.size};
      check_case(devices, test);
    }
  }
}

}  // namespace

TEST_CASE("forward is right in all modes of the emulator: scores of any size", "[emulator]") {
  Devices devices = forward_emulators();
  check_huge_scores(devices, kHugeScores);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: scores of any size", "[emulator]") {
  Devices devices = forward_emulators();
  check_huge_scores(devices, kHugeScoresSm90);
}

TEST_CASE("forward is right on the GPU: scores of any size", "[gpu]") {
  Devices devices = Devices::gpu();
  check_huge_scores(devices, kHugeScores);
  if (devices.spec().compute_major == 9) check_huge_scores(devices, kHugeScoresSm90);
}

TEST_CASE("forward is right in all modes of the emulator: large magnitudes", "[emulator]") {
  Devices devices = forward_emulators();
  check_large_magnitudes(devices, kLargeMagnitudes);
}

TEST_CASE("forward is right in all modes of the emulator: shifted scores", "[emulator]") {
  Devices devices = forward_emulators();
  check_shifted_scores(devices, kShiftedScores);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: large magnitudes, leaps", "[emulator]") {
  Devices devices = forward_emulators();
  check_large_magnitudes(devices, kLargeMagnitudesSm90);
  check_leaps(devices, kLeapsSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: shifted scores, large values", "[emulator]") {
  Devices devices = forward_emulators();
  check_shifted_scores(devices, kShiftedScoresSm90);
  check_large_values(devices, kLargeValuesSm90);
}

TEST_CASE("forward is right on the GPU: large magnitudes", "[gpu]") {
  Devices devices = Devices::gpu();
  check_large_magnitudes(devices, kLargeMagnitudes);
}

TEST_CASE("forward is right on the GPU: shifted scores", "[gpu]") {
  Devices devices = Devices::gpu();
  check_shifted_scores(devices, kShiftedScores);
}

TEST_CASE("sm90 forward is right on the GPU: large magnitudes, leaps, shifted scores, large values", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_large_magnitudes(devices, kLargeMagnitudesSm90);
  check_leaps(devices, kLeapsSm90);
  check_shifted_scores(devices, kShiftedScoresSm90);
  check_large_values(devices, kLargeValuesSm90);
}

}  // namespace attune::tests
