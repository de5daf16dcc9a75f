// Kernels that drop elements of P: which ones, all families, passes, tiles and features must agree upon with the
// oracles.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/families/family_word.h"
#include "runtime/oracle/dropout_mask.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Each place where P is packed, each loop, parts of keys, and promoted sums.
const Configs kSm80 = {"sm80 q64 kv32 w4 st2", "sm80 q16 kv16 w1 st3 rescale10 parts=fill promoted",
                       "sm80 q128 kv48 w4 st1 qsmem order=tile-major-reversed rescale8"};
const Configs kSm90 = {"sm90 q64 kv32 st2 rescale10 parts3",
                       "sm90 q128 kv48 st2 qreg ordered overlap=within rescale10 scheduler=static-persistent qst2",
                       "sm90 q192 kv32 st2 pingpong rescale8 scheduler=dynamic-persistent",
                       "sm90 q128 kv64 st2 overlap=across psmem cluster2 scheduler=static-persistent",
                       "sm90 q64 kv80 st1 exp4 overlap=within rescale10 scheduler=static-persistent promote2"};
// Each way from P to dS: registers, shared memory, from one warpgroup to another; in order and not.
const Configs kBackwardSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                               "sm80 q32 kv64 w2 st2 dq=ordered kv-grad-per-query-head",
                               "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kBackwardSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                               "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                               "sm90 q64 kv64 st2 dq=atomic split-dkdv overlap=within dost1",
                               "sm90 q128 kv64 st1 dsst1 dq=atomic p-in-ds split-dkdv polled-loads",
                               "sm90 q64 kv128 st2 ordered overlap=queued dq=atomic scheduler=dynamic-persistent",
                               "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic",
                               "sm90 q64 kv128 st2 dq=atomic kv-grad-per-query-head"};

// Probabilities on both sides of a half, of which one leaves little and one takes little.
constexpr const char* kSizes[] = {"sq7 skv70", "sq130 skv5", "sq200 skv300", "sq1 skv700"};
constexpr const char* kTerms[] = {"dropout0.1",
                                  "causal dropout0.6 softcap2",
                                  "window=150,20 dropout0.01 sink",
                                  "causal@-100 dropout0.97 alibi",
                                  "dropout0.3 used bias=1hqk",
                                  "causal dropout0.003 packed attention-mask=b1qk"};

template <typename Check>
void for_each_case(const Configs& configs, const Check& check) {
  std::uint32_t number = 0;
  for (const char* config : configs) {
    for (const char* sizes : kSizes) {
      for (const char* terms : kTerms) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        check(dtype + "b2 hq4 hkv2 " + sizes + " d" + (number % 3 == 0 ? "64 " : "32 ") + terms, config, number);
      }
    }
  }
}

void check_forward(Devices& devices, const Configs& configs) {
  for_each_case(configs, [&](const std::string& problem, const char* config, std::uint32_t number) {
    ForwardCase test = case_from("forward " + problem, config);
    if (test.config.cluster > 1 && test.problem.has_used_lengths()) return;  // which do not go together
    test.seed = number;
    test.with_lse = number % 4 != 0;
    test.placement = number % 3 == 0 ? Placement::padded : Placement::packed;
    check_case(devices, test);
  });
}

void check_backward(Devices& devices, const Configs& configs) {
  for_each_case(configs, [&](const std::string& problem, const char* config, std::uint32_t number) {
    BackwardCase test = backward_case("backward " + problem, config);
    test.seed = number;
    test.with_lse = number % 3 != 0;
    test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
    test.problem.bias_gradient = test.problem.bias != PairTensor::none && number % 5 != 0;
    check_case(devices, test);
  });
}

void check_head_dims(Devices& devices, const char* forward, const char* backward, const char* backward_of_wide) {
  for (const int head_dim : {8, 40, 72, 128, 256}) {
    const std::string problem = "b1 hq3 sq70 skv150 d" + std::to_string(head_dim) + " causal bhsd dropout0.2";
    check_case(devices, case_from("forward fp16 " + problem, forward));
    check_case(devices, backward_case("backward fp16 " + problem, head_dim > 128 ? backward_of_wide : backward));
  }
}

// Scores of 0 and V of ones on a diagonal: O is what is kept of P, in a row for each query and a column for each key of
// those that V has a one for. Likewise dV, where dO is the diagonal: a row for each key and a column for each query.
constexpr const char* kOfMasks = "b2 hq2 sq150 skv130 d64 bhsd dropout";

using Kept = std::vector<bool>;  // for each batch entry, head, query and key

std::size_t pair_of(const AttentionProblem& problem, std::int64_t head, std::int64_t query, std::int64_t key) {
  return static_cast<std::size_t>((head * problem.seq_q + query) * problem.seq_kv + key);
}

// Ones in row first + d, column d, of each head of a tensor (B, H, S, D) of zeros.
std::vector<std::uint16_t> diagonal(const AttentionProblem& problem, std::int64_t rows, std::int64_t first) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(problem.batch * problem.heads_q * rows * problem.head_dim));
  for (std::int64_t head = 0; head < problem.batch * problem.heads_q; ++head)
    for (std::int64_t d = 0; d < problem.head_dim && first + d < rows; ++d)
      bits[static_cast<std::size_t>((head * rows + first + d) * problem.head_dim + d)] = from_double(problem.dtype, 1);
  return bits;
}

Kept oracle_mask(const AttentionProblem& problem, const TermValues& terms) {
  const DropoutMask mask(problem, terms);
  Kept kept;
  for (std::int64_t head = 0; head < problem.batch * problem.heads_q; ++head)
    for (std::int64_t query = 0; query < problem.seq_q; ++query)
      for (std::int64_t key = 0; key < problem.seq_kv; ++key) kept.push_back(mask.of(head, query, key) != 0);
  return kept;
}

Kept forward_mask(AttentionRuntime& runtime, const ForwardCase& test, ForwardData data) {
  const AttentionProblem& problem = test.problem;
  const std::int64_t heads = problem.batch * problem.heads_q, columns = problem.head_dim;
  Kept kept(static_cast<std::size_t>(heads * problem.seq_q * problem.seq_kv));
  const auto whole = [](TensorImage& image) { return image.memory.begin() + image.origin; };
  std::fill_n(whole(data.q), heads * problem.seq_q * columns, 0);
  for (std::int64_t first = 0; first < problem.seq_kv; first += columns) {
    const std::vector<std::uint16_t> v = diagonal(problem, problem.seq_kv, first);
    std::copy(v.begin(), v.end(), whole(data.v));
    const std::vector<std::uint16_t> o = run_forward(runtime, test, data).o;
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t query = 0; query < problem.seq_q; ++query)
        for (std::int64_t d = 0; d < columns && first + d < problem.seq_kv; ++d)
          kept[pair_of(problem, head, query, first + d)] =
              o[static_cast<std::size_t>(data.o.origin + (head * problem.seq_q + query) * columns + d)] != 0;
  }
  return kept;
}

Kept backward_mask(AttentionRuntime& runtime, const BackwardCase& test, BackwardData data) {
  const AttentionProblem& problem = test.problem;
  const std::int64_t heads = problem.batch * problem.heads_q, columns = problem.head_dim;
  Kept kept(static_cast<std::size_t>(heads * problem.seq_q * problem.seq_kv));
  data.q.assign(data.q.size(), 0);
  data.lse.assign(data.lse.size(), 0);
  for (std::int64_t first = 0; first < problem.seq_q; first += columns) {
    data.d_o = diagonal(problem, problem.seq_q, first);
    const std::vector<std::uint16_t> d_v = run_backward(runtime, test, data).d_v;
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t key = 0; key < problem.seq_kv; ++key)
        for (std::int64_t d = 0; d < columns && first + d < problem.seq_q; ++d)
          kept[pair_of(problem, head, first + d, key)] =
              d_v[static_cast<std::size_t>((head * problem.seq_kv + key) * columns + d)] != 0;
  }
  return kept;
}

// Not what a kernel computes of the mask, but the mask, of all configs, families and passes: the same to the last bit.
void check_masks(Devices& devices, const Configs& forward, const Configs& backward) {
  AttentionRuntime& runtime = *devices.runtimes.front();
  for (const char* dropout : {"0.1", "0.001", "0.4995", "0.75", "0.998"}) {
    ForwardCase test = case_from(std::string("forward fp16 ") + kOfMasks + dropout, forward.front());
    test.seed = 5;
    const ForwardData data = make_data(test);
    const Kept expected = oracle_mask(test.problem, data.terms);
    for (const char* config : forward) {
      INFO(config << ", dropout " << dropout);
      test.config = parse_config(config);
      CHECK(forward_mask(runtime, test, data) == expected);
    }
    for (const char* config : backward) {
      INFO(config << ", dropout " << dropout);
      BackwardCase gradients = backward_case(std::string("backward fp16 ") + kOfMasks + dropout, config);
      gradients.config.kv_grad_per_query_head = false;  // which heads of their own keys do not have
      BackwardData of_gradients(gradients);
      of_gradients.terms = data.terms;
      CHECK(backward_mask(runtime, gradients, of_gradients) == expected);
    }
  }
}

}  // namespace

TEST_CASE("forward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm80);
}

TEST_CASE("sm90 forward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_forward(devices, kSm90);
}

TEST_CASE("backward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm80);
  check_head_dims(devices, "sm80 q16 kv32 w1 st2 rescale10", "sm80 q32 kv32 w2 st2 dq=atomic",
                  "sm80 q32 kv32 w4 st1 query-warps2 dq=atomic");
}

TEST_CASE("sm90 backward with dropout is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(4);
  check_backward(devices, kBackwardSm90);
  check_head_dims(devices, "sm90 q64 kv32 st1 rescale10", "sm90 q64 kv128 st2 dq=atomic",
                  "sm90 q64 kv64 st2 dost1 dq=atomic split-dkdv");
}

TEST_CASE("all kernels drop the same elements, bit by bit", "[emulator]") {
  Devices devices = forward_emulators();
  check_masks(devices, kSm80, kBackwardSm80);
  check_masks(devices, kSm90, kBackwardSm90);
}

TEST_CASE("dropout is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_masks(devices, kSm80, kBackwardSm80);
  check_forward(devices, kSm80);
  check_backward(devices, kBackwardSm80);
}

TEST_CASE("sm90 dropout is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check_masks(devices, kSm90, kBackwardSm90);
  check_forward(devices, kSm90);
  check_backward(devices, kBackwardSm90);
}

}  // namespace attune::tests
