// Every kind of data with the same exactness: the oracle's bounds, and FlashAttention's rule beside plain attention.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"
#include "tests/kernels/plain_attention.h"

namespace attune::tests {
namespace {

const Configs kConfigs = {"sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 rescale10",
                          "sm80 q64 kv32 w4 st2 rescale10 parts5"};
// One for each way in which a kernel follows the maximum, computes exponentials, or orders the two.
const Configs kConfigsSm90 = {"sm90 q64 kv64 st2",
                              "sm90 q64 kv32 st2 exp4",
                              "sm90 q128 kv64 st2 rescale10",
                              "sm90 q128 kv64 st2 overlap=within",
                              "sm90 q128 kv64 st2 rescale10 overlap=within exp4",
                              "sm90 q64 kv32 st2 rescale10 overlap=within parts5",
                              "sm90 q128 kv64 st2 rescale10 overlap=within ascending-keys"};
const Configs kFurtherConfigsSm90 = {"sm90 q128 kv32 st2 rescale10 overlap=across scheduler=dynamic-persistent",
                                     "sm90 q128 kv32 st2 rescale10 pingpong", "sm90 q128 kv32 st2 rescale10 exp8",
                                     "sm90 q128 kv32 st2 overlap=within psmem"};

// Shape words without a mask: odd lengths, several tiles, keys before the diagonal.
const std::vector<std::string> kShapes = {"bf16 b1 hq2 hkv1 sq130 skv300 d64", "fp16 b1 hq2 hkv1 sq130 skv300 d128"};
const std::vector<std::string> kFurtherShapes = {"fp16 b1 hq2 hkv1 sq130 skv300 d64",
                                                 "bf16 b1 hq2 hkv1 sq130 skv300 d128"};
const std::vector<std::string> kLargeShapes = {
    "bf16 b1 hq2 hkv1 sq300 skv1100 d64", "fp16 b1 hq2 hkv1 sq300 skv1100 d64", "bf16 b1 hq2 hkv1 sq300 skv1100 d128",
    "fp16 b1 hq2 hkv1 sq300 skv1100 d128"};

std::vector<double> values_of(const ForwardCase& test, Operand operand, const TensorImage& image) {
  return unpacked(test.problem, operand, image, image.memory);
}

// O as each of some configs computes it, as plain attention does, and what is right.
struct Outputs {
  std::vector<double> plain, exact;
  std::vector<std::vector<double>> of_configs;
};

// What is right, and what plain attention makes of it, once for all configs. On the first device alone: whether modes
// agree does not depend on the data. O is rescaled as early as this dtype wants it.
Outputs checked_outputs(Devices& devices, const ForwardCase& test, const Configs& configs, bool averages) {
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  Outputs outputs;
  outputs.plain = plain_forward(test.problem, {values_of(test, Operand::q, data.q),
                                               values_of(test, Operand::k, data.k),
                                               values_of(test, Operand::v, data.v),
                                               {}});
  outputs.exact = expected.o;
  for (const char* config : configs) {
    ForwardCase one = test;
    one.config = with_threshold_for(test.problem.dtype, parse_config(config));
    INFO(to_string(one));
    std::vector<double>& o = outputs.of_configs.emplace_back();
    try {
      const ForwardResult result = run_forward(*devices.runtimes.front(), one, data);
      CHECK(complaint(one, data, expected, result) == "");
      o = unpacked(test.problem, Operand::o, data.o, result.o);
      CHECK(rule_complaint(
                test.problem,
                {.name = "O", .actual = o, .plain = outputs.plain, .exact = outputs.exact, .averages = averages}) ==
            "");
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
  return outputs;
}

void check_rule(Devices& devices, const ForwardCase& test, const Configs& configs) {
  if (!devices.draw.takes_next()) return;
  checked_outputs(devices, test, configs, true);
}

void check_suite(Devices& devices, const Configs& configs, const std::vector<std::string>& shapes) {
  for (const std::string& shape : shapes) {
    for (const char* mask : {"", " causal"}) {
      for (const DataKind& kind : data_suite()) {
        ForwardCase test = case_from("forward " + shape + mask, configs.front());
        test.data = kind;
        check_rule(devices, test, configs);
      }
    }
  }
}

// A key that outweighs all others by some powers of two, fewer and more than those from which O is rescaled. All rows
// have the same P, whose one rounding is as lucky as it happens to be: over a scan of powers, which has unlucky ones
// (fp16 at 7.25), the largest error is judged at each and the mean one over all; at some powers, both
// (docs/notebook/forward_sm90.md).
void check_thresholds(Devices& devices, const Configs& configs, double step) {
  for (const char* shape : {"bf16 b1 hq2 hkv1 sq70 skv300 d64", "fp16 b1 hq2 hkv1 sq70 skv300 d128"}) {
    ForwardCase test = case_from(std::string("forward ") + shape, configs.front());
    for (const double powers : {7.3, 7.9, 8.6, 9.3, 9.9, 10.2, 12.4}) {
      test.data = {ScorePattern::dominant, powers};
      check_rule(devices, test, configs);
    }
    Outputs all;
    all.of_configs.resize(configs.size());
    const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    for (double powers = 7.05; powers < 10.6; powers += step) {
      test.data = {ScorePattern::dominant, powers};
      const Outputs outputs = checked_outputs(devices, test, configs, false);
      append(outputs.plain, &all.plain);
      append(outputs.exact, &all.exact);
      for (std::size_t i = 0; i < configs.size(); ++i) append(outputs.of_configs[i], &all.of_configs[i]);
    }
    for (std::size_t i = 0; i < configs.size(); ++i) {
      INFO(shape << ' ' << configs[i] << ", all powers together");
      REQUIRE(all.of_configs[i].size() == all.exact.size());
      CHECK(rule_complaint(test.problem, {"O", all.of_configs[i], all.plain, all.exact}) == "");
    }
  }
}

// A row that sees one key has exactly its V as O, and its score as LSE.
void check_single_keys(Devices& devices, const Configs& configs) {
  for (const char* shape : {"bf16 b1 hq2 hkv1 sq70 skv1 d64", "fp16 b1 hq2 hkv1 sq70 skv1 d128",
                            "bf16 b1 hq2 hkv1 sq70 skv70 d64 causal", "fp16 b1 hq2 hkv1 sq70 skv70 d128 causal"}) {
    for (const DataKind& kind :
         {DataKind{ScorePattern::normal, 1}, {ScorePattern::normal, 64}, {ScorePattern::sink, 20}}) {
      ForwardCase test = case_from(std::string("forward ") + shape, configs.front());
      test.data = kind;
      check_rule(devices, test, configs);
      const ForwardData data = make_data(test);
      for (const char* config : configs) {
        test.config = parse_config(config);
        INFO(to_string(test));
        const ForwardResult result = run_forward(*devices.runtimes.front(), test, data);
        const std::int64_t single = test.problem.mask == MaskKind::none ? test.problem.seq_q : 1;
        int different = 0;
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t row = 0; row < single; ++row) {
            const auto o = static_cast<std::size_t>(data.o.index(0, head, row));
            const auto v = static_cast<std::size_t>(data.v.index(0, 0, 0));
            for (std::size_t d = 0; d < static_cast<std::size_t>(test.problem.head_dim); ++d)
              different += result.o[o + d] != data.v.memory[v + d];
          }
        }
        CHECK(different == 0);
      }
    }
  }
}

// V whose sums are finite as long as no exponential is above what an online maximum has: a maximum that follows with a
// delay must not let a leap overflow.
void check_large_values(Devices& devices, const Configs& configs) {
  for (const char* mask : {"", " causal"}) {
    for (const int exponent : {100, 118}) {
      for (const double leap : {7.0, 20.0, 33.0, 200.0}) {
        ForwardCase test = case_from(std::string("forward bf16 b1 hq2 hkv1 sq130 skv300 d64") + mask, configs.front());
        test.data = {ScorePattern::leap, leap};
        test.v_exponent = exponent;
        check_rule(devices, test, configs);
      }
    }
  }
}

}  // namespace

TEST_CASE("data kinds have the scores that their names say", "[nogpu]") {
  const ForwardCase shape = case_from("forward bf16 b1 hq1 sq40 skv1000 d64", "sm80 q64 kv64 w4 st2");
  for (const DataKind& kind : data_suite()) {
    INFO(to_string(kind));
    ForwardCase test = shape;
    test.data = kind;
    const ForwardData data = make_data(test);
    const std::vector<double> q = values_of(test, Operand::q, data.q), k = values_of(test, Operand::k, data.k);
    double squares = 0, most_apart = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      double of_first = 0;
      for (std::size_t j = 0; j < 1000; ++j) {
        double random = 0;
        const double offset = key_offset(kind, static_cast<std::int64_t>(j), 1000);
        for (std::size_t d = 0; d < 64; ++d) random += q[64 * i + d] * k[64 * j + d] / 8;
        random -= offset;  // its rounding to the type costs 138 * 2^-8 at most
        squares += random * random;
        if (j == 0) of_first = random;
        most_apart = std::max(most_apart, std::fabs(random - of_first));
      }
    }
    const bool has_spread = kind.pattern == ScorePattern::normal || kind.pattern == ScorePattern::t3;
    const double deviation = std::sqrt(squares / 40000) / (has_spread ? kind.parameter : 1);
    if (kind.pattern == ScorePattern::t3) {
      CHECK((deviation > 0.5 && deviation < 2));  // converges slowly: there is no fourth moment
    } else if (kind.pattern == ScorePattern::equal || kind.pattern == ScorePattern::dominant) {
      CHECK(most_apart < 0.1);
    } else {
      CHECK((deviation > 0.9 && deviation < 1.1));
    }
  }
  CHECK(key_offset({ScorePattern::sink, 12}, 0, 1000) == 12);
  CHECK(key_offset({ScorePattern::sink, 12}, 1, 1000) == 0);
  CHECK(key_offset({ScorePattern::near, -20}, 999, 1000) == -20);
  CHECK(key_offset({ScorePattern::leap, 1}, 125, 1000) == Approx(0.693147));
  CHECK(key_offset({ScorePattern::dominant, 20}, 500, 1000) == Approx(13.8629));
  int rare = 0;
  for (std::int64_t j = 0; j < 5000; ++j) rare += key_offset({ScorePattern::rare, 8}, j, 5000) == 8;
  CHECK(rare == 10);
}

TEST_CASE("FlashAttention's rule refuses what errs more than twice as much as plain attention", "[nogpu]") {
  ForwardCase test = case_from("forward bf16 b1 hq1 sq64 skv200 d64 causal", "sm80 q64 kv64 w4 st2");
  test.data = {ScorePattern::normal, 4};
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  const std::vector<double> plain = plain_forward(test.problem, {values_of(test, Operand::q, data.q),
                                                                 values_of(test, Operand::k, data.k),
                                                                 values_of(test, Operand::v, data.v),
                                                                 {}});
  const auto complaint_of = [&](const std::vector<double>& o) {
    return rule_complaint(test.problem, {"O", o, plain, expected.o});
  };
  CHECK(complaint_of(plain) == "");
  CHECK(complaint_of(expected.o) == "");
  std::vector<double> wrong = plain;
  wrong[65] += 0.1;
  CHECK(complaint_of(wrong).starts_with("The largest error of O is 0.1"));
  wrong[65] = std::nan("");
  CHECK(complaint_of(wrong) == "An element of O is NaN.");
  wrong = plain;
  for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] += 3 * (plain[i] - expected.o[i]) * (i % 5 != 0);
  wrong[std::size_t{64}] = plain[64];
  CHECK(complaint_of(wrong) != "");
  for (double& x : wrong) x = 0;
  CHECK(complaint_of(wrong) != "");
}

TEST_CASE("forward follows FlashAttention's rule on the emulator: data suite", "[emulator]") {
  Devices devices = forward_emulators();
  check_suite(devices, kConfigs, kShapes);
  check_single_keys(devices, kConfigs);
  check_thresholds(devices, kConfigs, 0.25);
  check_large_values(devices, kConfigs);
}

TEST_CASE("sm90 forward follows FlashAttention's rule on the emulator: data suite", "[emulator]") {
  Devices devices = forward_emulators();
  check_suite(devices, kConfigsSm90, kShapes);
}

TEST_CASE("sm90 forward follows FlashAttention's rule on the emulator: single keys, large values", "[emulator]") {
  Devices devices = forward_emulators();
  check_single_keys(devices, kConfigsSm90);
  check_thresholds(devices, kConfigsSm90, 0.25);
  check_large_values(devices, kConfigsSm90);
}

TEST_CASE("forward follows FlashAttention's rule on the emulator: data suite, further shapes and configs",
          "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_suite(devices, kConfigs, kFurtherShapes);
  check_suite(devices, kConfigsSm90, kFurtherShapes);
  check_suite(devices, kFurtherConfigsSm90, kShapes);
  check_single_keys(devices, kFurtherConfigsSm90);
  check_large_values(devices, kFurtherConfigsSm90);
}

TEST_CASE("forward follows FlashAttention's rule on the GPU: data suite", "[gpu]") {
  Devices devices = Devices::gpu();
  check_suite(devices, kConfigs, kLargeShapes);
  check_single_keys(devices, kConfigs);
  check_thresholds(devices, kConfigs, 0.05);
  check_large_values(devices, kConfigs);
}

TEST_CASE("sm90 forward follows FlashAttention's rule on the GPU: data suite", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  Configs configs = kConfigsSm90;
  configs.insert(configs.end(), kFurtherConfigsSm90.begin(), kFurtherConfigsSm90.end());
  check_suite(devices, configs, kLargeShapes);
  check_single_keys(devices, configs);
  check_thresholds(devices, configs, 0.05);
  check_large_values(devices, configs);
}

}  // namespace attune::tests
