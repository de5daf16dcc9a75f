// Gradients of every kind of data: the oracle's bounds, and FlashAttention's rule beside plain attention.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/plain_attention.h"

namespace attune::tests {
namespace {

using Configs = std::vector<const char*>;
const Configs kConfigs = {"sm80 q64 kv64 w4 st2 dq=atomic", "sm80 q32 kv32 w2 st2 dq=separate-kernel",
                          "sm80 q32 kv32 w2 st1 dq=ordered kv-grad-per-query-head",
                          "sm90 q64 kv128 st2 overlap=within dq=atomic", "sm90 q64 kv64 st1 dq=ordered"};
const Configs kFurtherConfigs = {"sm80 q64 kv64 w4 st2 query-warps2 dq=atomic dq-first",
                                 "sm80 q32 kv64 w4 st2 dq=ordered",
                                 "sm90 q64 kv128 st2 ordered overlap=queued dq=atomic",
                                 "sm90 q64 kv64 st2 overlap=within split-dkdv dq=ordered kv-grad-per-query-head"};

// Shape words without a mask.
const std::vector<std::string> kShapes = {"bf16 b1 hq2 hkv1 sq70 skv130 d64", "fp16 b1 hq2 hkv1 sq70 skv130 d128"};
const std::vector<std::string> kFurtherShapes = {"fp16 b1 hq2 hkv1 sq70 skv130 d64",
                                                 "bf16 b1 hq2 hkv1 sq70 skv130 d128"};
const std::vector<std::string> kLargeShapes = {"bf16 b1 hq2 hkv1 sq300 skv700 d64", "fp16 b1 hq2 hkv1 sq300 skv700 d64",
                                               "bf16 b1 hq2 hkv1 sq300 skv700 d128",
                                               "fp16 b1 hq2 hkv1 sq300 skv700 d128"};

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Delta, the row's sum of dO o O, cancels dP where a row hardly sees more than one key. Both are sums in fp32, in
// different orders: what is left of dS is so much, while plain attention subtracts equal numbers.
double floor_of_ds(const AttentionProblem& problem, const PlainInputs& inputs) {
  double largest_row = 0;
  const auto dim = static_cast<std::size_t>(problem.head_dim);
  for (std::size_t row = 0; row < inputs.d_o.size(); row += dim) {
    double squares = 0;
    for (std::size_t d = 0; d < dim; ++d) squares += inputs.d_o[row + d] * inputs.d_o[row + d];
    largest_row = std::max(largest_row, std::sqrt(squares));
  }
  return 0x1p-22 * problem.softmax_scale * largest_row * std::sqrt(static_cast<double>(dim)) * largest_of(inputs.v);
}

void check_rule(Devices& devices, const BackwardCase& test, const Configs& configs) {
  if (!devices.draw.takes_next()) return;
  const AttentionProblem& problem = test.problem;
  const BackwardData data(test);
  const PlainInputs inputs = {unpacked(problem, Operand::q, data.q), unpacked(problem, Operand::k, data.k),
                              unpacked(problem, Operand::v, data.v), unpacked(problem, Operand::d_o, data.d_o)};
  const PlainGradients plain = plain_backward(problem, inputs, Delta::scores);
  const PlainGradients saved = plain_backward(problem, inputs, Delta::saved_o);
  const double floor = floor_of_ds(problem, inputs);
  const bool apart = test.data && has_offsets(*test.data);
  for (const char* config : configs) {
    BackwardCase one = test;
    one.config = parse_config(config);
    INFO(to_string(one));
    try {
      const BackwardResult result = run_backward(*devices.runtimes.front(), one, data);
      CHECK(result.complaint == "");
      for (const OutputErrors& output :
           compare_backward(problem, data.reference, result.d_q, result.d_k, result.d_v, result.d_sinks, result.d_bias)
               .outputs)
        CHECK(output.complaint == "");
      const std::vector<double> d_q = unpacked(problem, Operand::d_q, result.d_q);
      const std::vector<double> d_k = unpacked(problem, Operand::d_k, result.d_k);
      const std::vector<double> d_v = unpacked(problem, Operand::d_v, result.d_v);
      const ReferenceBackward& exact = data.reference;
      const RuleOutput outputs[] = {
          {"dQ", d_q, plain.d_q, exact.d_q.value, saved.d_q, floor * largest_of(inputs.k), apart},
          {"dK", d_k, plain.d_k, exact.d_k.value, saved.d_k, floor * largest_of(inputs.q)},
          {"dV", d_v, plain.d_v, exact.d_v.value}};
      for (const RuleOutput& output : outputs) CHECK(rule_complaint(problem, output) == "");
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
}

void check_suite(Devices& devices, const Configs& configs, const std::vector<std::string>& shapes) {
  for (const std::string& shape : shapes) {
    for (const char* mask : {"", " causal"}) {
      for (const DataKind& kind : data_suite()) {
        BackwardCase test = backward_case("backward " + shape + mask, configs.front());
        test.data = kind;
        check_rule(devices, test, configs);
      }
    }
  }
}

// Where a row sees one key, dQ and its part of dK are 0 and its part of dV is dO.
void check_single_keys(Devices& devices, const Configs& configs) {
  for (const char* shape : {"bf16 b1 hq2 hkv1 sq70 skv1 d64", "fp16 b1 hq2 hkv1 sq70 skv1 d128",
                            "bf16 b1 hq2 hkv1 sq1 skv70 d64 causal@0", "fp16 b1 hq2 hkv1 sq70 skv70 d128 causal"}) {
    for (const DataKind& kind : {DataKind{ScorePattern::normal, 1}, {ScorePattern::normal, 16}}) {
      BackwardCase test = backward_case(std::string("backward ") + shape, configs.front());
      test.data = kind;
      check_rule(devices, test, configs);
    }
  }
}

// Keys of which every row has a probability below fp32's smallest normal number: their gradients are flushed to zero.
void check_tiny_probabilities(Devices& devices, const Configs& configs) {
  BackwardCase test = backward_case("backward bf16 b1 hq2 hkv1 sq70 skv130 d64 causal", configs.front());
  test.seed = 2;
  for (const double spread : {30.0, 64.0}) {
    test.data = {ScorePattern::normal, spread};
    check_rule(devices, test, configs);
  }
}

}  // namespace

// Delta is of an O that was rounded: one dominating key of large elements, and keys of heavy tails, show it.
void check_saved_output(Devices& devices, const Configs& configs) {
  const std::pair<const char*, DataKind> cases[] = {
      {"backward bf16 b1 hq2 hkv1 sq300 skv700 d64", {ScorePattern::t3, 1}},
      {"backward fp16 b1 hq2 hkv1 sq300 skv700 d64 causal", {ScorePattern::dominant, 20}}};
  for (const auto& [problem, kind] : cases) {
    BackwardCase test = backward_case(problem, configs.front());
    test.data = kind;
    check_rule(devices, test, {configs.front()});
  }
}

std::ptrdiff_t count_nan(const std::vector<double>& values) {
  return std::count_if(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

// LSE in fp32 has an error of the size of the last bits of huge scores, and P's exponent has it too. But P is at most
// 1, and a number: so are the gradients, and dV is no larger than the sum of dO.
void check_huge_scores(Devices& devices, const Configs& configs) {
  for (const char* shape : {"bf16 b1 hq2 hkv1 sq70 skv130 d64", "fp16 b1 hq2 hkv1 sq70 skv130 d64 causal"}) {
    for (const float scale : {0x1p-8f, 11.5f}) {
      for (const double size : {0x1p25, 0x1p30, -0x1p30, 0x1p124, -0x1p124}) {
        BackwardCase test = backward_case(std::string("backward ") + shape, configs.front());
        if (test.problem.dtype == DataType::fp16 && std::fabs(size) > 0x1p30) continue;
        if (!devices.draw.takes_next()) continue;
        test.problem.softmax_scale = scale;
        test.data = {ScorePattern::huge, size};
        const BackwardData data(test);
        const AttentionProblem& problem = test.problem;
        const std::vector<double> d_o = unpacked(problem, Operand::d_o, data.d_o);
        for (const char* config : configs) {
          test.config = parse_config(config);
          INFO(to_string(test));
          const BackwardResult result = run_backward(*devices.runtimes.front(), test, data);
          CHECK(result.complaint == "");
          const std::vector<double> d_v = unpacked(problem, Operand::d_v, result.d_v);
          const auto columns = static_cast<std::size_t>(problem.head_dim);
          std::vector<double> most(columns);  // of all queries of both heads, which share the keys
          for (std::size_t i = 0; i < d_o.size(); ++i) most[i % columns] += std::fabs(d_o[i]);
          std::size_t beyond = 0;
          for (std::size_t i = 0; i < d_v.size(); ++i) beyond += !(std::fabs(d_v[i]) <= most[i % columns] * 1.01);
          CHECK(beyond == 0);
          // Their size is not limited: an infinity of 16 bits stands for what is larger. NaN is none.
          CHECK(count_nan(unpacked(problem, Operand::d_q, result.d_q)) == 0);
          CHECK(count_nan(unpacked(problem, Operand::d_k, result.d_k)) == 0);
        }
      }
    }
  }
}

TEST_CASE("backward keeps P within 1 on the emulator: scores of any size", "[emulator]") {
  Devices devices = Devices::emulators();
  check_huge_scores(devices, kConfigs);
  check_huge_scores(devices, {"sm90 q64 kv64 st2 overlap=within split-dkdv dq=ordered"});
}

TEST_CASE("backward keeps P within 1 on the GPU: scores of any size", "[gpu]") {
  Devices devices = Devices::gpu();
  check_huge_scores(devices, kConfigs);
  check_huge_scores(devices, kFurtherConfigs);
}

TEST_CASE("backward follows FlashAttention's rule on the emulator: what a rounded O costs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_saved_output(devices, kConfigs);
}

TEST_CASE("backward follows FlashAttention's rule on the emulator: data suite", "[emulator]") {
  Devices devices = Devices::emulators();
  check_suite(devices, kConfigs, kShapes);
  check_single_keys(devices, kConfigs);
  check_tiny_probabilities(devices, kConfigs);
}

TEST_CASE("backward follows FlashAttention's rule on the emulator: data suite, further shapes and configs",
          "[emulator][slow]") {
  Devices devices = Devices::emulators();
  check_suite(devices, kConfigs, kFurtherShapes);
  check_suite(devices, kFurtherConfigs, kShapes);
  check_single_keys(devices, kFurtherConfigs);
}

TEST_CASE("backward follows FlashAttention's rule on the GPU: data suite", "[gpu]") {
  Devices devices = Devices::gpu();
  Configs configs = kConfigs;
  configs.insert(configs.end(), kFurtherConfigs.begin(), kFurtherConfigs.end());
  check_suite(devices, configs, kLargeShapes);
  check_single_keys(devices, configs);
  check_tiny_probabilities(devices, configs);
}

}  // namespace attune::tests
