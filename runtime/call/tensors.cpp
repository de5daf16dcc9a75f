#include <algorithm>
#include <cstdint>

#include "attune/attention.h"

namespace attune {
namespace {

constexpr int kWholeAlignment = 16, kElementAlignment = 2;  // bytes
constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;

bool is_multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }

// Strides of dimensions of extent 1 are never used, whatever they say. Tensor maps take no negative ones, nor longer
// ones.
bool rows_aligned(const TensorView& view, const OperandShape& shape) {
  const std::int64_t element_bytes = size_of(shape.element), elements = kWholeAlignment / element_bytes;
  const auto serves = [&](std::int64_t stride, std::int64_t extent) {
    return extent == 1 || (is_multiple(stride, elements) && stride >= 0 && stride < kMaxStrideBytes / element_bytes);
  };
  return reinterpret_cast<std::uintptr_t>(view.data) % kWholeAlignment == 0 && serves(view.stride_batch, shape.batch) &&
         serves(view.stride_head, shape.heads) && serves(view.stride_row, shape.rows);
}

}  // namespace

TensorView packed_view(const AttentionProblem& problem, Operand operand, const void* data) {
  const TensorStrides strides = packed_strides(problem, operand);
  return {data, strides.batch, strides.head, strides.row};
}

int alignment_of(const Tensors& tensors, const AttentionProblem& problem) {
  for (const std::span<const Operand> operands : {inputs_of(problem.pass), outputs_of(problem.pass)}) {
    for (const Operand operand : operands) {
      if (has_strides(operand) && !rows_aligned(tensors[operand], operand_shape(problem, operand)))
        return kElementAlignment;
    }
  }
  return kWholeAlignment;
}

}  // namespace attune
