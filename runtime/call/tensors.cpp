#include <cstdint>

#include "attune/attention.h"
#include "generator/plan/tensor_strides.h"

namespace attune {
namespace {

constexpr int kWholeAlignment = 16, kElementAlignment = 2;  // bytes

bool rows_aligned(const TensorView& view, const OperandShape& shape) {
  return reinterpret_cast<std::uintptr_t>(view.data) % kWholeAlignment == 0 &&
         has_aligned_strides(shape, {view.stride_batch, view.stride_head, view.stride_row});
}

}  // namespace

TensorView packed_view(const AttentionProblem& problem, Operand operand, const void* data) {
  const TensorStrides strides = packed_strides(problem, operand);
  return {data, strides.batch, strides.head, strides.row};
}

int alignment_of(const Tensors& tensors, const AttentionProblem& problem) {
  for (const Operand operand : kOperands) {
    if (!has_whole_rows(operand) || facts_of(operand).access(problem) == Access::none) continue;
    if (!rows_aligned(tensors[operand], operand_shape(problem, operand))) return kElementAlignment;
  }
  return kWholeAlignment;
}

}  // namespace attune
