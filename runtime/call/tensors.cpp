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
    const OperandFacts& facts = facts_of(operand);
    if (!facts.strided || facts.access(problem) == Access::none) continue;
    const OperandShape shape = facts.shape(problem);
    if (shape.has_columns() && !rows_aligned(tensors[operand], shape)) return kElementAlignment;
  }
  return kWholeAlignment;
}

}  // namespace attune
