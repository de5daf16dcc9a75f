#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "generator/problem/attention_problem.h"
#include "generator/problem/element_type.h"

namespace attune {

/// A tensor that a call reads or writes.
enum class Operand {
  q,
  k,
  v,
  o,
  lse,
  d_q,
  d_k,
  d_v,
  d_o,
  d_lse,
  sinks,
  d_sinks,
  seqused_q,
  seqused_kv,
  alibi_slopes,
  bias,
  attention_mask,
  d_bias,
  cu_seqlens_q,
  cu_seqlens_kv,
  dropout_state
};
inline constexpr Operand kOperands[] = {Operand::q,
                                        Operand::k,
                                        Operand::v,
                                        Operand::o,
                                        Operand::lse,
                                        Operand::d_q,
                                        Operand::d_k,
                                        Operand::d_v,
                                        Operand::d_o,
                                        Operand::d_lse,
                                        Operand::sinks,
                                        Operand::d_sinks,
                                        Operand::seqused_q,
                                        Operand::seqused_kv,
                                        Operand::alibi_slopes,
                                        Operand::bias,
                                        Operand::attention_mask,
                                        Operand::d_bias,
                                        Operand::cu_seqlens_q,
                                        Operand::cu_seqlens_kv,
                                        Operand::dropout_state};
inline constexpr std::size_t kOperandCount = std::size(kOperands);

std::string_view to_string(Operand operand);   ///< for people: "q", "dq"
std::string_view identifier(Operand operand);  ///< in source: "q", "d_q"

/// The dimensions of an operand's tensor, and what it is made of. A tensor with a number for each row of Q (LSE and its
/// gradient) has one column, one with a number for each query head (sinks and their gradient) one batch entry and one
/// row, too, one with a number for each batch entry (used lengths) one head and one row, one with a number for each of
/// both (slopes) one row; the state of dropout has two numbers, its seed and its offset. A tensor of pairs has one
/// batch entry, head or row where it repeats along these.
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

/// What a pass does with an operand. What it may read or write can be left out of a call.
enum class Access { none, reads, may_read, writes, may_write };

/// Problems that have an operand.
enum class OperandOf { all, sinks, used_lengths, packed, alibi, bias, bias_gradient, attention_mask, dropout };

/// What follows from an operand, and from it and a problem: strides, views, tensor maps, checks and files derive from
/// it.
struct OperandFacts {
  std::string_view name;        ///< for people: "q", "dq"
  std::string_view identifier;  ///< in source: "q", "d_q"
  OperandShape (*shape)(const AttentionProblem& problem);
  Access forward, backward;  ///< of problems that have it
  bool strided;              ///< a call gives its strides; others are contiguous, (batch, head, row)
  OperandOf of;              ///< which problems have it at all

  bool is_of(const AttentionProblem& problem) const {
    switch (of) {
      case OperandOf::all:
        return true;
      case OperandOf::sinks:
        return problem.sink;
      case OperandOf::used_lengths:
        return problem.has_used_lengths();
      case OperandOf::packed:
        return problem.packed;
      case OperandOf::alibi:
        return problem.alibi;
      case OperandOf::bias:
        return problem.bias != PairTensor::none;
      case OperandOf::bias_gradient:
        return problem.bias_gradient;
      case OperandOf::attention_mask:
        return problem.attention_mask != PairTensor::none;
      case OperandOf::dropout:
        return problem.dropout != 0;
    }
    return false;
  }
  Access access(const AttentionProblem& problem) const {
    if (!is_of(problem)) return Access::none;
    return problem.pass == Pass::forward ? forward : backward;
  }
};
const OperandFacts& facts_of(Operand operand);

OperandShape operand_shape(const AttentionProblem& problem, Operand operand);

/// Whether an operand has an element for each pair of a query and a key. Kernels read these alone, not rows of them.
constexpr bool is_of_pairs(Operand operand) {
  return operand == Operand::bias || operand == Operand::attention_mask || operand == Operand::d_bias;
}
/// Whether kernels read or write its rows whole, so that it matters where they start: those of Q, K, V, O and of their
/// gradients.
constexpr bool has_whole_rows(Operand operand) {
  switch (operand) {
    case Operand::q:
    case Operand::k:
    case Operand::v:
    case Operand::o:
    case Operand::d_q:
    case Operand::d_k:
    case Operand::d_v:
    case Operand::d_o:
      return true;
    default:
      return false;
  }
}

/// In elements; the columns of a row are contiguous.
struct TensorStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};
/// The strides of an operand that is packed in problem.layout, a tensor of pairs as (batch, head, row), with 0 along
/// which it repeats. Throws Error(internal) for one without strides.
TensorStrides packed_strides(const AttentionProblem& problem, Operand operand);

bool has_strides(Operand operand);
/// Whether a kernel of some pass writes it.
bool is_written(Operand operand);

/// Some operands, in the order of the interface.
class OperandList {
 public:
  void add(Operand operand) { operands_[count_++] = operand; }
  const Operand* begin() const { return operands_.data(); }
  const Operand* end() const { return operands_.data() + count_; }

 private:
  std::array<Operand, kOperandCount> operands_{};
  std::size_t count_ = 0;
};

/// What a call of the problem reads, or may read, and what it writes.
OperandList inputs_of(const AttentionProblem& problem);
OperandList outputs_of(const AttentionProblem& problem);
/// Inputs that only some problems have: what their terms read.
OperandList term_inputs_of(const AttentionProblem& problem);

}  // namespace attune
