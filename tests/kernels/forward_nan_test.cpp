// NaN in, NaN out: wherever a NaN stands, the rows that see it show it, and no other row of Q or K does.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

const Configs kConfigs = {"sm80 q64 kv32 w4 st2", "sm80 q64 kv64 w4 st2 rescale10",
                          "sm80 q64 kv32 w4 st2 rescale10 parts3", "sm80 q32 kv32 w2 st2 rescale10 pack-gqa",
                          "sm80 q64 kv32 w4 st1 qsmem"};
// One for each way in which a kernel follows the maximum, computes exponentials, orders its work or shares it.
const Configs kConfigsSm90 = {"sm90 q64 kv32 st2",
                              "sm90 q64 kv32 st2 exp4",
                              "sm90 q64 kv32 st2 rescale10 exp8",
                              "sm90 q128 kv32 st2 rescale10 overlap=within exp8",
                              "sm90 q128 kv32 st2 overlap=within psmem",
                              "sm90 q128 kv32 st2 overlap=across scheduler=dynamic-persistent exp4",
                              "sm90 q128 kv32 st2 rescale10 overlap=across scheduler=dynamic-persistent exp4",
                              "sm90 q128 kv32 st2 rescale10 pingpong",
                              "sm90 q64 kv32 st2 rescale10 overlap=within vst3 cluster2",
                              "sm90 q64 kv32 st2 rescale10 overlap=within pack-gqa",
                              "sm90 q64 kv32 st2 rescale10 overlap=within parts3"};

constexpr std::int64_t kRows = 150;
constexpr std::size_t kColumns = 64, kNanColumn = 5;

struct NanRow {
  int columns = 0;  // of O that are NaN
  bool nan_column = false, lse = false;
};

NanRow nans_of(const ForwardData& data, const ForwardResult& result, DataType dtype, std::int64_t head,
               std::int64_t row) {
  NanRow found;
  const auto at = static_cast<std::size_t>(data.o.index(0, head, row));
  for (std::size_t d = 0; d < kColumns; ++d) {
    const std::uint16_t bits = result.o[at + d];
    const bool is_nan = std::isnan(dtype == DataType::bf16 ? decode_bf16(bits) : decode_f16(bits));
    found.columns += is_nan;
    if (d == kNanColumn) found.nan_column = is_nan;
  }
  found.lse = std::isnan(result.lse[kLseGuard + static_cast<std::size_t>(head * kRows + row)]);
  return found;
}

// In Q: O and LSE of its row. In K: of the rows that see its key. Rows that do not show it have the LSE that they have
// without it. In V: its element of O in the rows that see its key, and LSE of none; a row that does not see the key
// multiplies it by a probability of 0 if its tile visits the block, so that it may be NaN in this element alone.
void check_nan(Devices& devices, const Configs& configs, const std::string& dtype) {
  for (const char* config : configs) {
    ForwardCase test = case_from("forward " + dtype + " b1 hq2 hkv1 sq150 d64 causal", config);
    test.q_deviation = 8;  // row maxima grow after the NaN, too
    const ForwardData clean = make_data(test);
    const Expected expected = expected_forward(test, clean);
    for (const Operand operand : {Operand::q, Operand::k, Operand::v}) {
      for (const std::int64_t place : {0, 3, 70, 149}) {
        INFO(to_string(test) << ", NaN in row " << place << " of " << to_string(operand));
        ForwardData data = clean;
        TensorImage& image = operand == Operand::q ? data.q : operand == Operand::k ? data.k : data.v;
        image.memory[static_cast<std::size_t>(image.index(0, 0, place)) + kNanColumn] =
            test.problem.dtype == DataType::bf16 ? 0x7fc0 : 0x7e00;
        const ForwardResult result = run_forward(*devices.runtimes.front(), test, data);
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t row = 0; row < kRows; ++row) {
            INFO("head " << head << ", row " << row);
            const NanRow found = nans_of(data, result, test.problem.dtype, head, row);
            const bool sees = operand == Operand::q ? head == 0 && row == place : row >= place;
            if (operand == Operand::v) {
              CHECK(found.columns == found.nan_column);
              if (sees) CHECK(found.nan_column);
            } else {
              CHECK(found.columns == (sees ? static_cast<int>(kColumns) : 0));
            }
            CHECK(found.lse == (sees && operand != Operand::v));
            if (found.lse) continue;
            const auto at = static_cast<std::size_t>(head * kRows + row);
            CHECK(std::fabs(result.lse[kLseGuard + at] - expected.lse[at]) < 1e-3);
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("NaN shows wherever it is seen on the emulator: forward", "[emulator]") {
  Devices devices = forward_emulators();
  check_nan(devices, kConfigs, "bf16");
  check_nan(devices, {kConfigs.back()}, "fp16");
}

TEST_CASE("NaN shows wherever it is seen on the emulator: sm90 forward", "[emulator]") {
  Devices devices = forward_emulators();
  check_nan(devices, kConfigsSm90, "bf16");
  check_nan(devices, {"sm90 q128 kv32 st2 rescale10 overlap=within exp8"}, "fp16");
}

TEST_CASE("NaN shows wherever it is seen on the GPU: forward", "[gpu]") {
  Devices devices = Devices::gpu();
  for (const char* dtype : {"bf16", "fp16"}) {
    check_nan(devices, kConfigs, dtype);
    if (devices.spec().compute_major == 9) check_nan(devices, kConfigsSm90, dtype);
  }
}

}  // namespace attune::tests
