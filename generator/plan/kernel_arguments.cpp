#include "generator/plan/kernel_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

std::string_view name_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::batch:
      return "batch";
    case Dimension::head:
      return "head";
    case Dimension::row:
      return "row";
  }
  return {};
}

struct ScalarFacts {
  std::string_view name, type;
};

ScalarFacts facts(Scalar scalar) {
  switch (scalar) {
    case Scalar::batch:
      return {"batch", "i32"};
    case Scalar::heads_q:
      return {"heads_q", "i32"};
    case Scalar::heads_kv:
      return {"heads_kv", "i32"};
    case Scalar::group_size:
      return {"group_size", "i32"};
    case Scalar::seq_q:
      return {"seq_q", "i32"};
    case Scalar::seq_kv:
      return {"seq_kv", "i32"};
    case Scalar::query_tiles:
      return {"query_tiles", "i32"};
    case Scalar::key_tiles:
      return {"key_tiles", "i32"};
    case Scalar::section_heads:
      return {"section_heads", "i32"};
    case Scalar::first_offset:
      return {"first_offset", "i32"};
    case Scalar::mask_offset:
      return {"mask_offset", "i32"};
    case Scalar::diagonals_move:
      return {"diagonals_move", "i32"};
    case Scalar::softmax_scale:
      return {"softmax_scale", "float"};
    case Scalar::softmax_scale_log2:
      return {"softmax_scale_log2", "float"};
    case Scalar::softcap:
      return {"softcap", "float"};
    case Scalar::tanh_scale:
      return {"tanh_scale", "float"};
    case Scalar::tiles:
      return {"tiles", "i32"};
    case Scalar::key_parts:
      return {"key_parts", "i32"};
    case Scalar::bias_batch:
      return {"bias_batch", "i32"};
    case Scalar::bias_heads:
      return {"bias_heads", "i32"};
    case Scalar::bias_rows:
      return {"bias_rows", "i32"};
    case Scalar::attention_mask_batch:
      return {"attention_mask_batch", "i32"};
    case Scalar::attention_mask_heads:
      return {"attention_mask_heads", "i32"};
    case Scalar::attention_mask_rows:
      return {"attention_mask_rows", "i32"};
    case Scalar::max_seq_q:
      return {"max_seq_q", "i32"};
    case Scalar::max_seq_kv:
      return {"max_seq_kv", "i32"};
    case Scalar::dropout_bytes:
      return {"dropout_bytes", "i32"};
    case Scalar::dropout_join:
      return {"dropout_join", "i32"};
    case Scalar::dropout_part:
      return {"dropout_part", "i32"};
    case Scalar::dropout:
      return {"dropout", "float"};
    case Scalar::dropout_scale:
      return {"dropout_scale", "float"};
  }
  throw Error(ErrorCode::internal, fmt::format("scalar {} is unknown", static_cast<int>(scalar)));
}

struct NameOf {
  std::string operator()(const Pointer& pointer) const { return std::string(identifier(pointer.operand)); }
  std::string operator()(const Stride& stride) const {
    return fmt::format("{}_stride_{}", identifier(stride.operand), name_of(stride.dimension));
  }
  std::string operator()(const TensorMap& map) const { return fmt::format("{}_map", identifier(map.operand)); }
  std::string operator()(const ByTensorMap& map) const { return fmt::format("{}_by_map", identifier(map.operand)); }
  std::string operator()(const Workspace& workspace) const { return std::string(workspace.buffer.name); }
  std::string operator()(const Given& given) const { return std::string(given.name); }
  std::string operator()(CallValue value) const {
    return value == CallValue::dropout_seed ? "dropout_seed" : "dropout_offset";
  }
  std::string operator()(Scalar scalar) const { return std::string(facts(scalar).name); }
};

struct TypeOf {
  std::string_view operator()(const Pointer& pointer) const {
    const ElementType element = operand_shape({}, pointer.operand).element;
    if (element == ElementType::int32) return "const i32*";
    if (element == ElementType::int64) return "const u64*";
    if (element == ElementType::fp32) return is_written(pointer.operand) ? "float*" : "const float*";
    return is_written(pointer.operand) ? "void*" : "const void*";
  }
  std::string_view operator()(const Stride&) const { return "i64"; }
  std::string_view operator()(const TensorMap&) const { return "TensorMap"; }
  std::string_view operator()(const ByTensorMap&) const { return "i32"; }
  std::string_view operator()(const Workspace& workspace) const { return workspace.buffer.type; }
  std::string_view operator()(const Given& given) const { return given.type; }
  std::string_view operator()(CallValue) const { return "u64"; }
  std::string_view operator()(Scalar scalar) const { return facts(scalar).type; }
};

}  // namespace

std::string to_string(const KernelArgument& argument) { return std::visit(NameOf{}, argument); }
std::string_view type_text(const KernelArgument& argument) { return std::visit(TypeOf{}, argument); }

std::size_t size_of(const KernelArgument& argument) {
  if (std::holds_alternative<TensorMap>(argument)) return kTensorMapArgumentBytes;
  return std::holds_alternative<Scalar>(argument) || std::holds_alternative<ByTensorMap>(argument) ? 4 : 8;
}

void append(Arguments* fields, std::initializer_list<KernelArgument> more) {
  fields->insert(fields->end(), more.begin(), more.end());
}

void append_pointers(Arguments* fields, std::initializer_list<Operand> operands) {
  for (const Operand operand : operands) fields->push_back(Pointer{operand});
}

void append_lengths(Arguments* fields, const AttentionProblem& problem) {
  if (problem.has_used_lengths()) append_pointers(fields, {Operand::seqused_q, Operand::seqused_kv});
  if (problem.packed) append_pointers(fields, {Operand::cu_seqlens_q, Operand::cu_seqlens_kv});
  if (problem.has_longest_sequence()) append(fields, {Scalar::max_seq_q, Scalar::max_seq_kv});
}

void append_mask(Arguments* fields, const AttentionProblem& problem) {
  if (hides_first_keys(problem.mask)) fields->push_back(Scalar::first_offset);
  fields->push_back(Scalar::mask_offset);
  if (problem.has_used_lengths()) fields->push_back(Scalar::diagonals_move);
}

void append_score_unit(Arguments* fields, const AttentionProblem& problem) {
  if (problem.adds_to_scores()) return;  // scores are in natural units
  fields->push_back(problem.softcap != 0 ? Scalar::softcap : Scalar::softmax_scale);
}

void append_score_scale(Arguments* fields, const AttentionProblem& problem) {
  if (!problem.adds_to_scores()) return fields->push_back(Scalar::softmax_scale_log2);
  fields->push_back(problem.softcap != 0 ? Scalar::softcap : Scalar::softmax_scale);
}

void append_row_end(Arguments* fields, const AttentionProblem& problem) {
  if (problem.sink) fields->push_back(Pointer{Operand::sinks});
}

void append_score(Arguments* fields, const AttentionProblem& problem) {
  if (problem.softcap != 0) fields->push_back(Scalar::tanh_scale);
  if (problem.alibi) {
    append(fields, {Pointer{Operand::alibi_slopes}, Stride{Operand::alibi_slopes, Dimension::batch},
                    Stride{Operand::alibi_slopes, Dimension::head}});
  }
  append_pair_tensors(fields, problem);
}

void append_pair_tensors(Arguments* fields, const AttentionProblem& problem) {
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    append_pointers(fields, {operand});
    append_strides(fields, {operand});
  }
}

Scalar pair_queries_of(const AttentionProblem& problem) {
  return problem.has_longest_sequence() ? Scalar::max_seq_q : Scalar::seq_q;
}

Scalar pair_keys_of(const AttentionProblem& problem) {
  return problem.has_longest_sequence() ? Scalar::max_seq_kv : Scalar::seq_kv;
}

void append_pair_maps(Arguments* fields, const AttentionProblem& problem) {
  for (const Operand operand : term_inputs_of(problem)) {
    if (is_of_pairs(operand)) append(fields, {TensorMap{operand}, ByTensorMap{operand}});
  }
}

void append_dropout(Arguments* fields, const AttentionProblem& problem) {
  if (problem.dropout == 0) return;
  append(fields, {Pointer{Operand::dropout_state}, CallValue::dropout_seed, CallValue::dropout_offset,
                  Scalar::dropout_bytes, Scalar::dropout_join, Scalar::dropout_part});
}

void append_dropout_scale(Arguments* fields, const AttentionProblem& problem) {
  if (problem.dropout != 0) fields->push_back(Scalar::dropout_scale);
}

void append_strides(Arguments* fields, std::initializer_list<Operand> operands) {
  for (const Operand operand : operands) {
    for (const Dimension dimension : {Dimension::batch, Dimension::head, Dimension::row})
      fields->push_back(Stride{operand, dimension});
  }
}

ArgumentLayout ArgumentLayout::of(Arguments fields) {
  ArgumentLayout layout;
  std::set<KernelArgument> seen;
  for (const KernelArgument& field : fields) {
    if (!seen.insert(field).second) {
      throw Error(ErrorCode::internal, fmt::format("kernel argument {} appears twice in a layout", to_string(field)));
    }
    const std::size_t bytes = size_of(field);
    const std::size_t alignment = std::min(bytes, kTensorMapArgumentAlignment);  // others are aligned to their size
    layout.offsets.push_back(round_up(layout.bytes, alignment));
    layout.bytes = layout.offsets.back() + bytes;
    layout.alignment = std::max(layout.alignment, alignment);
  }
  layout.bytes = round_up(layout.bytes, layout.alignment);
  layout.fields = std::move(fields);
  return layout;
}

}  // namespace attune
