// The generated fp64 kernel against the scalar oracle: on the emulator here, on a GPU where there is one.
#include <cmath>
#include <cstdlib>

#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/runtime/forward_case.h"

using namespace attune;
using attune::testing::ForwardCase;

namespace {

void check_close(double value, double reference, double weight) {
  if (std::isinf(reference)) {
    REQUIRE(value == reference);
  } else {
    REQUIRE(std::abs(value - reference) <= 1e-12 * (1 + std::abs(reference) + weight));
  }
}

void compare_oracles(const std::shared_ptr<Device>& device, const AttentionProblem& problem, std::int64_t shift) {
  const ForwardCase data(device, problem, shift);
  const ReferenceForward expected = reference_forward(problem, data.q, data.k, data.v);
  const ReferenceForward actual = reference_forward_on_device(device, problem, data.tensors);
  INFO(canonical_text(problem));
  REQUIRE(actual.o.size() == expected.o.size());
  REQUIRE(actual.lse.size() == expected.lse.size());
  for (std::size_t i = 0; i < expected.o.size(); ++i) {
    check_close(actual.o[i], expected.o[i], expected.weight[i]);
    check_close(actual.weight[i], expected.weight[i], expected.weight[i]);
  }
  for (std::size_t i = 0; i < expected.lse.size(); ++i) check_close(actual.lse[i], expected.lse[i], 0);
}

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seq_q, seq_kv;
  int head_dim;
};

void compare_all(const std::shared_ptr<Device>& device, const std::vector<Shape>& shapes) {
  int number = 0;
  for (const Shape& shape : shapes) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      AttentionProblem problem = make_problem(number % 2 == 0 ? DataType::bf16 : DataType::fp16, shape.batch,
                                              shape.heads_q, shape.seq_q, shape.head_dim, mask);
      problem.heads_kv = shape.heads_kv;
      problem.seq_kv = shape.seq_kv;
      if (mask == MaskKind::causal) problem.mask_offset = number % 3 == 0 ? 0 : shape.seq_kv - shape.seq_q;
      problem.layout = number % 2 == 0 ? Layout::bshd : Layout::bhsd;
      compare_oracles(device, problem, number % 3);
      ++number;
    }
  }
}

}  // namespace

TEST_CASE("the fp64 kernel agrees with the scalar oracle on the emulator", "[emulator]") {
  compare_all(make_emulator_device(find_device("h200")),
              {{1, 1, 1, 1, 1, 8}, {2, 2, 1, 3, 130, 64}, {1, 3, 3, 9, 5, 136}, {1, 1, 1, 2, 129, 256}});
}

TEST_CASE("the fp64 kernel agrees with the scalar oracle on the GPU", "[gpu]") {
  compare_all(open_cuda_device(0), {{1, 1, 1, 1, 1, 8},
                                    {2, 6, 2, 129, 1000, 64},
                                    {1, 3, 3, 300, 77, 136},
                                    {1, 1, 1, 257, 129, 256},
                                    {3, 8, 1, 64, 64, 128}});
}
