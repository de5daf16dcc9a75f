#include "generator/problem/operand_shape.h"

#include <iterator>
#include <string>

#include "generator/error.h"

namespace attune {
namespace {

OperandShape rows_of_queries(const AttentionProblem& problem, std::int64_t columns, ElementType element) {
  return {problem.row_batch(), problem.heads_q, problem.seq_q, columns, element};
}
OperandShape rows_of_keys(const AttentionProblem& problem, std::int64_t columns) {
  return {problem.row_batch(), problem.heads_kv, problem.seq_kv, columns, element_type(problem.dtype)};
}

OperandShape shape_of_q(const AttentionProblem& problem) {
  return rows_of_queries(problem, problem.head_dim_qk(), element_type(problem.dtype));
}
OperandShape shape_of_k(const AttentionProblem& problem) { return rows_of_keys(problem, problem.head_dim_qk()); }
OperandShape shape_of_v(const AttentionProblem& problem) { return rows_of_keys(problem, problem.head_dim_v()); }
OperandShape shape_of_o(const AttentionProblem& problem) {
  return rows_of_queries(problem, problem.head_dim_v(), element_type(problem.dtype));
}
OperandShape shape_of_lse(const AttentionProblem& problem) { return rows_of_queries(problem, 1, ElementType::fp32); }

OperandShape shape_of_sinks(const AttentionProblem& problem) { return {1, problem.heads_q, 1, 1, ElementType::fp32}; }

OperandShape shape_of_slopes(const AttentionProblem& problem) {
  return {problem.batch, problem.heads_q, 1, 1, ElementType::fp32};
}

OperandShape shape_of_pairs(const AttentionProblem& problem, PairTensor tensor, ElementType element) {
  const PairDimensions has = dimensions_of(tensor);
  return {has.batch ? problem.batch : 1, has.heads ? problem.heads_q : 1, has.queries ? problem.pair_queries() : 1,
          problem.pair_keys(), element};
}
OperandShape shape_of_bias(const AttentionProblem& problem) {
  return shape_of_pairs(problem, problem.bias, problem.bias_fp32 ? ElementType::fp32 : element_type(problem.dtype));
}
OperandShape shape_of_attention_mask(const AttentionProblem& problem) {
  return shape_of_pairs(problem, problem.attention_mask, ElementType::boolean);
}

OperandShape shape_of_lengths(const AttentionProblem& problem) { return {problem.batch, 1, 1, 1, ElementType::int32}; }
OperandShape shape_of_begins(const AttentionProblem& problem) {
  return {problem.batch + 1, 1, 1, 1, ElementType::int32};
}

OperandShape shape_of_dropout_state(const AttentionProblem&) { return {2, 1, 1, 1, ElementType::int64}; }

using enum Access;
constexpr OperandFacts kFacts[] = {
    {"q", "q", shape_of_q, reads, reads, true, OperandOf::all},                    // Operand::q
    {"k", "k", shape_of_k, reads, reads, true, OperandOf::all},                    // Operand::k
    {"v", "v", shape_of_v, reads, reads, true, OperandOf::all},                    // Operand::v
    {"o", "o", shape_of_o, writes, reads, true, OperandOf::all},                   // Operand::o
    {"lse", "lse", shape_of_lse, may_write, reads, false, OperandOf::all},         // Operand::lse
    {"dq", "d_q", shape_of_q, none, writes, true, OperandOf::all},                 // Operand::d_q
    {"dk", "d_k", shape_of_k, none, writes, true, OperandOf::all},                 // Operand::d_k
    {"dv", "d_v", shape_of_v, none, writes, true, OperandOf::all},                 // Operand::d_v
    {"do", "d_o", shape_of_o, none, reads, true, OperandOf::all},                  // Operand::d_o
    {"dlse", "d_lse", shape_of_lse, none, may_read, false, OperandOf::all},        // Operand::d_lse
    {"sinks", "sinks", shape_of_sinks, reads, reads, false, OperandOf::sinks},     // Operand::sinks
    {"dsinks", "d_sinks", shape_of_sinks, none, writes, false, OperandOf::sinks},  // Operand::d_sinks
    {"seqused_q", "seqused_q", shape_of_lengths, may_read, may_read, false,
     OperandOf::used_lengths},  // Operand::seqused_q
    {"seqused_kv", "seqused_kv", shape_of_lengths, may_read, may_read, false,
     OperandOf::used_lengths},                                                                // Operand::seqused_kv
    {"alibi_slopes", "alibi_slopes", shape_of_slopes, reads, reads, true, OperandOf::alibi},  // Operand::alibi_slopes
    {"bias", "bias", shape_of_bias, reads, reads, true, OperandOf::bias},                     // Operand::bias
    {"attention_mask", "attention_mask", shape_of_attention_mask, reads, reads, true,
     OperandOf::attention_mask},                                                       // Operand::attention_mask
    {"dbias", "d_bias", shape_of_bias, none, writes, true, OperandOf::bias_gradient},  // Operand::d_bias
    {"cu_seqlens_q", "cu_seqlens_q", shape_of_begins, reads, reads, false, OperandOf::packed},  // Operand::cu_seqlens_q
    {"cu_seqlens_kv", "cu_seqlens_kv", shape_of_begins, reads, reads, false,
     OperandOf::packed},  // Operand::cu_seqlens_kv
    {"dropout_state", "dropout_state", shape_of_dropout_state, may_read, may_read, false,
     OperandOf::dropout},  // Operand::dropout_state
};
static_assert(std::size(kFacts) == kOperandCount);

constexpr bool is_read(Access access) { return access == reads || access == may_read; }
constexpr bool is_written(Access access) { return access == writes || access == may_write; }

OperandList operands_of(const AttentionProblem& problem, bool (*wanted)(Access)) {
  OperandList list;
  for (const Operand operand : kOperands) {
    if (wanted(facts_of(operand).access(problem))) list.add(operand);
  }
  return list;
}

}  // namespace

const OperandFacts& facts_of(Operand operand) { return kFacts[static_cast<std::size_t>(operand)]; }

std::string_view to_string(Operand operand) { return facts_of(operand).name; }
std::string_view identifier(Operand operand) { return facts_of(operand).identifier; }

OperandShape operand_shape(const AttentionProblem& problem, Operand operand) {
  return facts_of(operand).shape(problem);
}

TensorStrides packed_strides(const AttentionProblem& problem, Operand operand) {
  if (!has_strides(operand)) {
    throw Error(ErrorCode::internal,
                std::string(to_string(operand)) + " has one layout, (batch, head, row), and no strides");
  }
  const auto [batch, heads, rows, columns, element] = operand_shape(problem, operand);
  if (is_of_pairs(operand)) {
    const auto stride = [](std::int64_t extent, std::int64_t elements) { return extent == 1 ? 0 : elements; };
    return {stride(batch, heads * rows * columns), stride(heads, rows * columns), stride(rows, columns)};
  }
  switch (problem.layout) {
    case Layout::bshd:
      return {heads * rows * columns, columns, heads * columns};
    case Layout::bhsd:
      return {heads * rows * columns, rows * columns, columns};
  }
  return {};
}

bool has_strides(Operand operand) { return facts_of(operand).strided; }

bool is_written(Operand operand) {
  return is_written(facts_of(operand).forward) || is_written(facts_of(operand).backward);
}

OperandList inputs_of(const AttentionProblem& problem) { return operands_of(problem, is_read); }

OperandList outputs_of(const AttentionProblem& problem) { return operands_of(problem, is_written); }

OperandList term_inputs_of(const AttentionProblem& problem) {
  OperandList list;
  for (const Operand operand : inputs_of(problem)) {
    if (facts_of(operand).of != OperandOf::all) list.add(operand);
  }
  return list;
}

}  // namespace attune
