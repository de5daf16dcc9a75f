#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// A tensor that a call reads or writes.
enum class Operand { q, k, v, o, lse, d_q, d_k, d_v, d_o, d_lse };
inline constexpr Operand kOperands[] = {Operand::q,   Operand::k,   Operand::v,   Operand::o,   Operand::lse,
                                        Operand::d_q, Operand::d_k, Operand::d_v, Operand::d_o, Operand::d_lse};
inline constexpr std::size_t kOperandCount = std::size(kOperands);

std::string_view to_string(Operand operand);   ///< for people: "q", "dq"
std::string_view identifier(Operand operand);  ///< in source: "q", "d_q"

enum class ElementType { fp16, bf16, fp32 };
int size_of(ElementType type);  ///< in bytes

/// The dimensions of an operand's tensor, and what it is made of. A tensor with a number for each row of Q (LSE and its
/// gradient) has one column.
struct OperandShape {
  std::int64_t batch = 0, heads = 0, rows = 0, columns = 0;
  ElementType element = ElementType::bf16;

  std::int64_t all_rows() const { return batch * heads * rows; }
  std::int64_t elements() const { return all_rows() * columns; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(elements()) * static_cast<std::size_t>(size_of(element));
  }
  friend bool operator==(const OperandShape&, const OperandShape&) = default;
};

/// The one place that knows the shape of a tensor: strides, views, tensor maps, checks and files derive from it.
OperandShape operand_shape(const AttentionProblem& problem, Operand operand);

/// In elements; the columns of a row are contiguous.
struct TensorStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};
/// The strides of an operand that is packed in problem.layout. Throws Error(internal) for one without strides.
TensorStrides packed_strides(const AttentionProblem& problem, Operand operand);

/// Whether a call gives the tensor's strides: of all but those with a number for each row, which are contiguous.
bool has_strides(Operand operand);
/// Whether a kernel of some pass writes it.
bool is_written(Operand operand);

/// What a call of the pass reads and writes, in the order of the interface. LSE may be absent where it is written, dLSE
/// where it is read.
std::span<const Operand> inputs_of(Pass pass);
std::span<const Operand> outputs_of(Pass pass);

}  // namespace attune
