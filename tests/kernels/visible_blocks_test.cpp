// Blocks of which the attention mask shows no pair are passed over: what stands in them reaches nothing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/generator/reasons_of.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/forward_checks.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

constexpr std::int64_t kRows = 300, kDocument = 64, kBad = 70;  // a row of the second document
constexpr std::uint16_t kNan = 0x7fc0;

// Rows see those of their own document. A key whose probability is 0 would make NaN of a NaN in V.
std::vector<std::uint8_t> documents() {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kRows; ++j) mask.push_back(i / kDocument == j / kDocument);
  return mask;
}
bool is_of_bad_document(std::size_t row) { return static_cast<std::int64_t>(row) / kDocument == kBad / kDocument; }

// Rows of (B, H, S, D) with a NaN, of the first head.
std::vector<bool> nan_rows(const std::vector<double>& values, std::size_t columns) {
  std::vector<bool> rows;
  for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    rows.push_back(
        std::any_of(begin, begin + static_cast<std::ptrdiff_t>(columns), [](double x) { return std::isnan(x); }));
  }
  return rows;
}

void check_forward(Devices& devices, const char* config) {
  const ForwardCase test = case_from("forward bf16 b1 hq2 hkv1 sq300 d64 attention-mask=11qk", config);
  ForwardData data = make_data(test);
  data.terms.set(Operand::attention_mask, documents());
  data.v.memory[static_cast<std::size_t>(data.v.index(0, 0, kBad))] = kNan;
  const ForwardResult result = run_forward(*devices.runtimes.front(), test, data);
  INFO(to_string(test));
  for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
    INFO("row " << row);
    const bool found =
        std::isnan(decode_bf16(result.o[static_cast<std::size_t>(data.o.index(0, 0, static_cast<std::int64_t>(row)))]));
    CHECK(found == is_of_bad_document(row));
  }
}

void check_backward(Devices& devices, const char* config) {
  const BackwardCase test = backward_case("backward bf16 b1 hq2 hkv1 sq300 d64 attention-mask=11qk", config);
  BackwardData data(test);
  data.terms.set(Operand::attention_mask, documents());
  const std::size_t heads = 2, columns = 64;
  data.d_o[static_cast<std::size_t>(kBad) * heads * columns] = kNan;
  const BackwardResult result = run_backward(*devices.runtimes.front(), test, data);
  const std::vector<bool> keys = nan_rows(unpacked(test.problem, Operand::d_k, result.d_k), columns),
                          values = nan_rows(unpacked(test.problem, Operand::d_v, result.d_v), columns),
                          queries = nan_rows(unpacked(test.problem, Operand::d_q, result.d_q), columns);
  INFO(to_string(test));
  for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
    INFO("row " << row);
    CHECK(keys[row] == is_of_bad_document(row));
    CHECK(values[row] == is_of_bad_document(row));
    CHECK(queries[row] == (static_cast<std::int64_t>(row) == kBad));
  }
}

// Blocks of a word and of several, of whole masks and of those that repeat, beside diagonals that hide blocks, too.
void check_values(Devices& devices) {
  check_rows(devices,
             {"sm90 q64 kv64 st2 visible-blocks rescale8",
              "sm90 q128 kv32 st2 pst2 visible-blocks ordered overlap=within scheduler=dynamic-persistent qst2",
              "sm90 q192 kv48 st1 pst1 visible-blocks pingpong rescale8 scheduler=static-persistent"},
             {"b2 hq4 hkv2 ",
              {"sq7 skv5", "sq200 skv192", "sq300 skv70", "sq1 skv1577", "sq70 skv1"},
              {" attention-mask=bhqk", " causal attention-mask=b1qk bias=1hqk sink",
               " window=150,60 attention-mask=11qk softcap3", " attention-mask=b11k used",
               " causal-top-left alibi attention-mask=1hqk", " alibi attention-mask=b1qk"}});
  int number = 0;
  for (const char* config : {"sm90 q64 kv64 st2 pst2 visible-blocks dq=atomic split-dkdv polled-loads",
                             "sm90 q16 kv128 st2 pst2 visible-blocks overlap=queued dq-by=softmax dq=atomic",
                             "sm90 q64 kv128 st2 visible-blocks ordered overlap=within dq=atomic early8",
                             "sm90 q64 kv64 st2 visible-blocks query-parts3 dq=atomic"}) {
    for (const char* lengths : {"sq7 skv70", "sq1130 skv5", "sq400 skv151"}) {
      for (const char* words : {" attention-mask=b1qk", " causal attention-mask=11qk bias=bhqk bias-gradient",
                                " window=120,60 attention-mask=b1qk alibi", " attention-mask=b11k used sink"}) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b2 hq4 hkv2 " + lengths + " d64" + words, config);
        test.with_lse = number % 3 != 0;
        test.seed = static_cast<std::uint64_t>(number);
        check_case(devices, test);
      }
    }
  }
}

}  // namespace

TEST_CASE("walks through visible blocks are right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_values(devices);
}

TEST_CASE("walks through visible blocks are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major == 9) check_values(devices);
}

TEST_CASE("forward passes over blocks of which the mask shows no pair", "[emulator]") {
  Devices devices = forward_emulators();
  for (const char* config : {"sm90 q64 kv64 st2 visible-blocks",
                             "sm90 q64 kv32 st2 pst1 visible-blocks overlap=within "
                             "scheduler=dynamic-persistent qst2"})
    check_forward(devices, config);
}

TEST_CASE("backward passes over blocks of which the mask shows no pair", "[emulator]") {
  Devices devices = forward_emulators();
  for (const char* config : {"sm90 q64 kv64 st2 visible-blocks dq=atomic",
                             "sm90 q64 kv64 st2 pst2 visible-blocks "
                             "overlap=queued dq-by=softmax dq=atomic",
                             "sm90 q64 kv64 st2 visible-blocks split-dkdv overlap=within dq=atomic query-parts2"})
    check_backward(devices, config);
}

TEST_CASE("what passes over blocks says what it does not go with", "[nogpu]") {
  constexpr const char* kMasked = "forward bf16 b1 hq2 sq300 d64 attention-mask=11qk";
  CHECK(testing::reasons_of("forward bf16 b1 hq2 sq300 d64", "sm90 q64 kv64 st2 visible-blocks") ==
        "visible-blocks: the problem has no attention mask; leave the word out\n");
  CHECK(testing::reasons_of(kMasked, "sm90 q128 kv64 st2 visible-blocks cluster2") ==
        "visible-blocks: does not go with cluster: its CTAs walk in step through the blocks of several tiles\n");
  CHECK(testing::reasons_of("backward bf16 b1 hq2 sq300 d64 attention-mask=1hqk",
                            "sm90 q64 kv64 st2 visible-blocks dq=atomic") ==
        "visible-blocks: does not go with a mask of each query head, where a tile walks through the heads that share "
        "its keys\n");
}

}  // namespace attune::tests
