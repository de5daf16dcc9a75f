// The ladder's kernels: right in all modes of the emulator and on the GPU, with the traffic that is counted for them.
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/ladder/attention_algorithm.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/kernels/case_table.h"
#include "tests/kernels/compiled_resources.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_case.h"
#include "tests/kernels/pairwise.h"

namespace attune::tests {
namespace {

// On the emulator: bytes that the kernels asked for are those that are counted, to the last one.
// Those of dropout's seed and offset are not read of a call that has none in memory.
void check_traffic(const ForwardCase& test, const ForwardData& data, const Device& device,
                   const EmulatorTraffic& before) {
  const KernelPlan plan = generate(test.problem, *test.algorithm, device.spec());
  AttentionProblem read = test.problem;
  if (data.terms.bytes(Operand::dropout_state).empty()) read.dropout = 0;
  MemoryTraffic counted = total_traffic(count_traffic(plan, *test.algorithm, read));
  const AttentionProblem& problem = test.problem;
  if (!test.with_lse) counted.written_bytes -= 4 * static_cast<double>(problem.batch * problem.heads_q * problem.seq_q);
  const EmulatorTraffic now = traffic_of(device);
  CHECK(static_cast<double>(now.read_bytes - before.read_bytes) == counted.read_bytes);
  CHECK(static_cast<double>(now.written_bytes - before.written_bytes) == counted.written_bytes);
}

// Right on the first device, and the same bits on the others.
void check_case(Devices& devices, const ForwardCase& test) {
  if (!devices.draw.takes_next()) return;
  INFO(to_string(test));
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  ForwardResult first;
  for (const std::size_t i : devices.of_next_case()) {
    INFO(devices.names[i]);
    const Device& device = *devices.runtimes[i]->device();
    const bool emulated = device.target() == KernelTarget::emulator;
    const EmulatorTraffic before = emulated ? traffic_of(device) : EmulatorTraffic{};
    ForwardResult result;
    try {
      result = run_forward(*devices.runtimes[i], test, data);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
      return;
    }
    if (emulated) check_traffic(test, data, device, before);
    if (i == 0) {
      CHECK(complaint(test, data, expected, result) == "");
      first = std::move(result);
    } else {
      CHECK(same_bits(first, result));
    }
  }
}

ForwardCase case_from(const std::string& problem, AttentionAlgorithm algorithm) {
  ForwardCase test;
  test.problem = parse_problem(problem);
  test.algorithm = algorithm;
  return test;
}

constexpr std::int64_t kLengths[] = {1, 3, 17, 130, 257};
constexpr int kHeadDims[] = {8, 16, 40, 64, 72, 128, 136, 256};
constexpr int kGroups[] = {1, 3, 8};
constexpr Placement kPlacements[] = {Placement::packed, Placement::padded, Placement::reversed};
enum Factor {
  kAlgorithm,
  kHeadDim,
  kSeqQ,
  kSeqKv,
  kGroup,
  kMask,
  kPlacement,
  kDtype,
  kDropout,
  kHeadsKv,
  kBatch,
  kAlignment,
  kLayout,
  kLse,
  kFactors
};

ForwardCase case_of(const FactorChoice& row) {
  ForwardCase test;
  test.placement = kPlacements[row[kPlacement]];
  test.problem = problem_of({.fp16 = row[kDtype] == 1,
                             .batch = 1 + row[kBatch],
                             .heads_kv = 1 + row[kHeadsKv],
                             .group = kGroups[row[kGroup]],
                             .seq_q = kLengths[row[kSeqQ]],
                             .seq_kv = kLengths[row[kSeqKv]],
                             .head_dim = kHeadDims[row[kHeadDim]],
                             .mask = static_cast<MaskChoice>(row[kMask]),
                             .unaligned = row[kAlignment] == 1,
                             .bhsd = row[kLayout] == 1,
                             .dropout = row[kDropout],
                             .placement = test.placement});
  test.with_lse = row[kLse] == 0;
  test.algorithm = kAttentionAlgorithms[row[kAlgorithm]];
  return test;
}

void check_pairwise(Devices& devices) {
  std::vector<int> sizes(kFactors, 2);
  sizes[kAlgorithm] = std::size(kAttentionAlgorithms);
  sizes[kHeadDim] = std::size(kHeadDims);
  sizes[kSeqQ] = sizes[kSeqKv] = std::size(kLengths);
  sizes[kGroup] = std::size(kGroups);
  sizes[kMask] = kMaskChoicesOfLadder;
  sizes[kDropout] = std::size(kDropouts);
  sizes[kPlacement] = std::size(kPlacements);
  std::uint32_t seed = 0;
  const auto allowed = [](const FactorChoice& row) {
    const ForwardCase test = case_of(row);
    return test.problem.dropout == 0 || test.algorithm == AttentionAlgorithm::fa1 ||
           test.algorithm == AttentionAlgorithm::fa2;
  };
  for (const FactorChoice& row : pairwise(sizes, allowed, 1).rows) {
    ForwardCase test = case_of(row);
    test.seed = ++seed;
    check_case(devices, test);
  }
}

void check_rows_that_see_nothing(Devices& devices) {
  for (const AttentionAlgorithm algorithm : kAttentionAlgorithms) {
    for (const char* lengths : {"sq300 skv17", "sq65 skv1"}) {
      for (const char* offset : {"causal", "causal@-1", "causal@-1000", "causal@-2147480000", "causal@2147480000"})
        check_case(devices, case_from(std::string("fp16 hq2 ") + lengths + " d40 " + offset, algorithm));
    }
  }
}

// Scores to +-1e4, whose exponentials are those of differences; one key that leaps far beyond the others.
void check_large_magnitudes(Devices& devices) {
  for (const AttentionAlgorithm algorithm : kAttentionAlgorithms) {
    for (const char* problem : {"bf16 hq2 sq129 skv200 d64", "fp16 hq2 sq129 skv200 d64 causal"}) {
      ForwardCase test = case_from(problem, algorithm);
      for (const double deviation : {30.0, 2500.0}) {
        test.q_deviation = deviation;
        check_case(devices, test);
      }
      test.q_deviation = 1;
      test.loud_key = 70;
      test.loudness = 200;
      check_case(devices, test);
    }
  }
}

TEST_CASE("algorithms are right in all modes of the emulator: pairwise over problems", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pairwise(devices);
}

TEST_CASE("algorithms are right in all modes of the emulator: rows that see nothing, large scores", "[emulator]") {
  Devices devices = Devices::emulators();
  check_rows_that_see_nothing(devices);
  check_large_magnitudes(devices);
}

TEST_CASE("algorithms are right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_pairwise(devices);
  check_rows_that_see_nothing(devices);
  check_large_magnitudes(devices);
  for (const AttentionAlgorithm algorithm : kAttentionAlgorithms)
    check_case(devices, case_from("bf16 b2 hq6 hkv2 sq700 skv1000 d128 causal", algorithm));
}

TEST_CASE("loaded kernels of an algorithm are shared by all lengths, heads and offsets", "[emulator]") {
  AttentionRuntime runtime(make_emulator_device(find_device("a100")));
  for (const AttentionAlgorithm algorithm :
       {AttentionAlgorithm::standard, AttentionAlgorithm::online, AttentionAlgorithm::fa1}) {
    const auto plan_of = [&](const AttentionProblem& problem) {
      const Device& device = *runtime.device();
      return generate(problem, algorithm, device.spec(), runtime_templates(), device.target());
    };
    const auto prepared = runtime.prepare(plan_of(parse_problem("hq1 sq20 d64 causal")));
    const auto other = runtime.prepare(plan_of(parse_problem("b2 hq4 hkv2 sq70 skv90 d64 causal@-3")));
    REQUIRE(prepared->kernels.size() == other->kernels.size());
    for (std::size_t i = 0; i < prepared->kernels.size(); ++i) CHECK(prepared->kernels[i] == other->kernels[i]);
  }
}

// A few registers around a loop cost nothing. Of fa1 with wide rows that are no power of two, addresses spill beside O.
int spill_allowance(AttentionAlgorithm algorithm, int head_dim) {
  return algorithm == AttentionAlgorithm::fa1 && head_dim > 136 ? 1024 : 64;
}

TEST_CASE("NVRTC compiles the algorithms at all head dims with hardly a spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  for (const char* device : {"a100", "rtx4090", "h200"}) {
    for (const int head_dim : {8, 64, 72, 120, 128, 136, 248, 256}) {
      if (!draw.takes_next()) continue;
      AttentionProblem problem = make_problem(head_dim == 64 ? DataType::fp16 : DataType::bf16, 1, 1, 1000, head_dim,
                                              head_dim == 64 ? MaskKind::none : MaskKind::causal);
      problem.alignment = head_dim == 136 ? 2 : 16;
      for (const AttentionAlgorithm algorithm :
           {AttentionAlgorithm::standard, AttentionAlgorithm::online, AttentionAlgorithm::fa1}) {
        for (const KernelLaunch& launch : generate(problem, algorithm, find_device(device)).launches) {
          INFO(device << ": " << canonical_text(problem) << " " << to_string(algorithm) << " " << launch.entry);
          const KernelResources& resources = compiled_resources(launch);
          CHECK(resources.spill_bytes <= spill_allowance(algorithm, head_dim));
          CHECK(resources.registers > 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attune::tests
