#include "generator/problem/operand_shape.h"

#include <algorithm>
#include <string>

#include "generator/error.h"

namespace attune {
namespace {

enum class Rows { queries, keys };
enum class Columns { of_qk, of_v, one };

struct OperandFacts {
  std::string_view name, identifier;
  Rows rows;
  Columns columns;
};

OperandFacts facts(Operand operand) {
  switch (operand) {
    case Operand::q:
      return {"q", "q", Rows::queries, Columns::of_qk};
    case Operand::k:
      return {"k", "k", Rows::keys, Columns::of_qk};
    case Operand::v:
      return {"v", "v", Rows::keys, Columns::of_v};
    case Operand::o:
      return {"o", "o", Rows::queries, Columns::of_v};
    case Operand::lse:
      return {"lse", "lse", Rows::queries, Columns::one};
    case Operand::d_q:
      return {"dq", "d_q", Rows::queries, Columns::of_qk};
    case Operand::d_k:
      return {"dk", "d_k", Rows::keys, Columns::of_qk};
    case Operand::d_v:
      return {"dv", "d_v", Rows::keys, Columns::of_v};
    case Operand::d_o:
      return {"do", "d_o", Rows::queries, Columns::of_v};
    case Operand::d_lse:
      return {"dlse", "d_lse", Rows::queries, Columns::one};
  }
  throw Error(ErrorCode::internal, "operand " + std::to_string(static_cast<int>(operand)) + " is unknown");
}

constexpr Operand kForwardInputs[] = {Operand::q, Operand::k, Operand::v};
constexpr Operand kForwardOutputs[] = {Operand::o, Operand::lse};
constexpr Operand kBackwardInputs[] = {Operand::q,   Operand::k,   Operand::v,    Operand::o,
                                       Operand::lse, Operand::d_o, Operand::d_lse};
constexpr Operand kBackwardOutputs[] = {Operand::d_q, Operand::d_k, Operand::d_v};

}  // namespace

std::string_view to_string(Operand operand) { return facts(operand).name; }
std::string_view identifier(Operand operand) { return facts(operand).identifier; }

int size_of(ElementType type) {
  switch (type) {
    case ElementType::fp16:
    case ElementType::bf16:
      return 2;
    case ElementType::fp32:
      return 4;
  }
  return 0;
}

OperandShape operand_shape(const AttentionProblem& problem, Operand operand) {
  const OperandFacts known = facts(operand);
  OperandShape shape;
  shape.batch = problem.batch;
  switch (known.rows) {
    case Rows::queries:
      shape.heads = problem.heads_q;
      shape.rows = problem.seq_q;
      break;
    case Rows::keys:
      shape.heads = problem.heads_kv;
      shape.rows = problem.seq_kv;
      break;
  }
  shape.element = problem.dtype == DataType::fp16 ? ElementType::fp16 : ElementType::bf16;
  switch (known.columns) {
    case Columns::of_qk:
      shape.columns = problem.head_dim_qk();
      break;
    case Columns::of_v:
      shape.columns = problem.head_dim_v();
      break;
    case Columns::one:
      shape.columns = 1;
      shape.element = ElementType::fp32;
      break;
  }
  return shape;
}

TensorStrides packed_strides(const AttentionProblem& problem, Operand operand) {
  if (!has_strides(operand)) {
    throw Error(ErrorCode::internal,
                std::string(to_string(operand)) + " has one layout, (batch, head, row), and no strides");
  }
  const auto [batch, heads, rows, columns, element] = operand_shape(problem, operand);
  switch (problem.layout) {
    case Layout::bshd:
      return {heads * rows * columns, columns, heads * columns};
    case Layout::bhsd:
      return {heads * rows * columns, rows * columns, columns};
  }
  return {};
}

bool has_strides(Operand operand) { return facts(operand).columns != Columns::one; }

bool is_written(Operand operand) {
  const auto among = [&](std::span<const Operand> operands) {
    return std::find(operands.begin(), operands.end(), operand) != operands.end();
  };
  return among(kForwardOutputs) || among(kBackwardOutputs);
}

std::span<const Operand> inputs_of(Pass pass) {
  if (pass == Pass::forward) return kForwardInputs;
  return kBackwardInputs;
}

std::span<const Operand> outputs_of(Pass pass) {
  if (pass == Pass::forward) return kForwardOutputs;
  return kBackwardOutputs;
}

}  // namespace attune
