#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

/// Throws Error(invalid_argument) if a packed tensor of the operand's shape has not as many elements.
inline void require_packed(const AttentionProblem& problem, std::span<const std::uint16_t> packed, Operand operand,
                           const char* name) {
  const std::int64_t wanted = operand_shape(problem, operand).elements();
  if (static_cast<std::int64_t>(packed.size()) != wanted) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " holds " + std::to_string(packed.size()) +
                                                 " elements, " + canonical_text(problem) + " has " +
                                                 std::to_string(wanted));
  }
}

/// The values of a packed tensor of the operand's shape, exactly, per (batch, head).
/// rows_last: (D, rows) per head, so that sums over columns run over neighbouring rows; otherwise (rows, D).
template <typename Value>
std::vector<Value> unpack(const AttentionProblem& problem, std::span<const std::uint16_t> packed, Operand operand,
                          bool rows_last) {
  const TensorView view = packed_view(problem, operand);
  const OperandShape shape = operand_shape(problem, operand);
  const std::int64_t heads = shape.heads, rows = shape.rows, columns = shape.columns;
  std::vector<Value> values(packed.size());
  parallel_for(static_cast<std::size_t>(problem.batch * heads), [&](std::size_t index) {
    const auto batch = static_cast<std::int64_t>(index) / heads, head = static_cast<std::int64_t>(index) % heads;
    const std::uint16_t* from = packed.data() + batch * view.stride_batch + head * view.stride_head;
    Value* to = values.data() + static_cast<std::int64_t>(index) * rows * columns;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const double value = to_double(problem.dtype, from[row * view.stride_row + column]);
        to[rows_last ? column * rows + row : row * columns + column] = static_cast<Value>(value);
      }
    }
  });
  return values;
}

}  // namespace attune
