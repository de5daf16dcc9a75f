// Problems and configs drawn at random: combinations of more than two features, which the pairwise tables do not hold
// by themselves.
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/case_table.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

constexpr std::size_t kCombinations = 300, kEmulated = 24;  // on a GPU, and of them on the emulator in CI
constexpr double kMostWork = 1e7;                           // padded queries * keys * head dim, over all heads

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint32_t>(count)); }
  bool coin() { return below(2) == 1; }
  template <typename Values>
  auto of(const Values& values) {
    return values[below(static_cast<int>(std::size(values)))];
  }

 private:
  std::mt19937 random_;
};

AttentionProblem drawn_problem(Draw& draw) {
  constexpr int kRows[] = {1, 2, 15, 64, 65, 127, 130, 200, 333, 700};
  constexpr int kHeadDims[] = {8, 24, 64, 64, 80, 128, 128, 192, 256};
  constexpr std::int64_t kGroups[] = {1, 1, 2, 3};
  AttentionProblem problem = problem_of({.fp16 = draw.coin(),
                                         .batch = 1 + draw.below(2),
                                         .heads_kv = 1 + draw.below(2),
                                         .group = draw.of(kGroups),
                                         .seq_q = draw.of(kRows),
                                         .seq_kv = draw.of(kRows),
                                         .head_dim = draw.of(kHeadDims),
                                         .mask = static_cast<MaskChoice>(draw.below(kMaskChoices)),
                                         .unaligned = draw.below(8) == 0,
                                         .bhsd = draw.coin(),
                                         .softcap = draw.below(static_cast<int>(std::size(kSoftcaps))),
                                         .dropout = draw.below(static_cast<int>(std::size(kDropouts))),
                                         .alibi = draw.coin(),
                                         .sink = draw.coin(),
                                         .bias = draw.below(static_cast<int>(std::size(kBiases))),
                                         .attention_mask = draw.below(static_cast<int>(std::size(kAttentionMasks))),
                                         .lengths = static_cast<LengthChoice>(draw.below(kLengthChoices))});
  problem.pass = draw.coin() ? Pass::backward : Pass::forward;
  problem.bias_gradient = problem.pass == Pass::backward && problem.bias != PairTensor::none && draw.coin();
  problem.deterministic = problem.pass == Pass::backward && draw.below(3) == 0;
  problem.invariant = draw.below(6) == 0;
  return simplest_mask(problem);
}

double work_of(const AttentionProblem& problem) {
  const std::int64_t sequences = problem.packed ? problem.batch : 1;  // each with a tile of its own
  return static_cast<double>(problem.row_batch() * problem.heads_q) *
         static_cast<double>((problem.seq_q + 63) / 64 * 64 + 64 * (sequences - 1)) *
         static_cast<double>((problem.seq_kv + 63) / 64 * 64) * problem.head_dim;
}

// The default config by turns with one of those that a search may try.
KernelConfig drawn_config(const AttentionProblem& problem, const DeviceSpec& device, Draw& draw) {
  if (draw.coin()) return default_config(problem, device);
  std::vector<KernelConfig> some;
  for (const Candidate& candidate : config_space(problem, device, SpaceExtent::reduced))
    if (candidate.feasible()) some.push_back(candidate.config);
  return draw.of(some);
}

void check_combinations(Devices& devices, std::size_t count, TablePart part = {}) {
  std::size_t drawn = 0;
  for (std::uint32_t seed = 1; drawn < part.end(count); ++seed) {
    Draw draw(seed);
    const AttentionProblem problem = drawn_problem(draw);
    if (!is_served(problem) || work_of(problem) > kMostWork || drawn++ < part.begin(count)) continue;
    const KernelConfig config = drawn_config(problem, devices.spec(), draw);
    INFO("seed " << seed);
    if (problem.pass == Pass::forward) {
      ForwardCase test;
      test.problem = problem;
      test.config = config;
      test.with_lse = draw.coin();
      test.seed = seed;
      check_case(devices, test);
    } else {
      BackwardCase test;
      test.problem = problem;
      test.config = config;
      test.with_lse = draw.coin();
      test.seed = seed;
      check_case(devices, test);
    }
  }
}

}  // namespace

TEST_CASE("features drawn together are right in all modes of the emulator", "[emulator]") {
  Devices devices = Devices::emulators();
  devices.draw = CaseDraw();
  check_combinations(devices, CaseDraw::takes_all() ? kCombinations : kEmulated);
}

constexpr std::size_t kPartsOnGpu = 8;  // test cases, which run in several processes

void check_part_on_gpu(std::size_t index) {
  Devices devices = Devices::gpu();
  check_combinations(devices, kCombinations, {index, kPartsOnGpu});
}
TEST_CASE("features drawn together are right on the GPU, 1 of 8", "[gpu]") { check_part_on_gpu(0); }
TEST_CASE("features drawn together are right on the GPU, 2 of 8", "[gpu]") { check_part_on_gpu(1); }
TEST_CASE("features drawn together are right on the GPU, 3 of 8", "[gpu]") { check_part_on_gpu(2); }
TEST_CASE("features drawn together are right on the GPU, 4 of 8", "[gpu]") { check_part_on_gpu(3); }
TEST_CASE("features drawn together are right on the GPU, 5 of 8", "[gpu]") { check_part_on_gpu(4); }
TEST_CASE("features drawn together are right on the GPU, 6 of 8", "[gpu]") { check_part_on_gpu(5); }
TEST_CASE("features drawn together are right on the GPU, 7 of 8", "[gpu]") { check_part_on_gpu(6); }
TEST_CASE("features drawn together are right on the GPU, 8 of 8", "[gpu]") { check_part_on_gpu(7); }

}  // namespace attune::tests
