#include "generator/export/launcher_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "generator/error.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"

namespace attune {
namespace {

// The type of a field, and a space.
struct TypeOf {
  std::string operator()(const Pointer&) const { return "const void* "; }
  std::string operator()(const Stride&) const { return "std::int64_t "; }
  std::string operator()(const TensorMap&) const { return "TensorMap "; }
  std::string operator()(const ByTensorMap&) const { return "std::int32_t "; }
  std::string operator()(const Workspace&) const { return "void* "; }
  std::string operator()(const Given& given) const {
    throw Error(ErrorCode::unsupported,
                fmt::format("a kernel that takes {}, which is no part of a call, is not exported", given.name));
  }
  std::string operator()(CallValue) const { return "std::uint64_t "; }
  std::string operator()(Scalar scalar) const { return type_text(scalar) == "float" ? "float " : "std::int32_t "; }
};

// The statement that gives a field of a launch's arguments its value.
struct ValueOf {
  const KernelPlan& plan;
  const KernelLaunch& launch;

  std::string operator()(const Pointer& pointer) const {
    return fmt::format("arguments.{0} = asked.{0};", identifier(pointer.operand));
  }
  std::string operator()(const Stride& stride) const {
    const std::string name = to_string(stride);
    if (stride.dimension != Dimension::row && !is_of_pairs(stride.operand))
      return fmt::format("arguments.{0} = asked.{0};", name);
    const char* const extent = stride.dimension == Dimension::batch  ? "batch"
                               : stride.dimension == Dimension::head ? "heads"
                                                                     : "rows";
    return fmt::format("arguments.{0} = stride_argument(asked.{0}, {1}.{2});", name, extents_of(stride.operand),
                       extent);
  }
  std::string operator()(const TensorMap& map) const {
    const auto spec = std::find_if(launch.tensor_maps.begin(), launch.tensor_maps.end(),
                                   [&](const TensorMapSpec& each) { return each.operand == map.operand; });
    if (spec == launch.tensor_maps.end())
      throw Error(ErrorCode::internal, fmt::format("no tensor map of {} is described", to_string(map.operand)));
    const ElementFacts& element = facts_of(operand_shape(plan.problem, map.operand).element);
    const bool pairs = is_of_pairs(map.operand);
    const std::string columns =
        pairs ? fmt::format("{{asked.{}, {}, CU_TENSOR_MAP_DATA_TYPE_{}}}", to_string(pair_keys_of(plan.problem)),
                            element.bytes, element.tensor_map)
              : "kColumns";
    return fmt::format(
        "{8}RETURN_IF_FAILED(encode(driver, &arguments.{0}, \"{1}\", asked.{1}, {9}, {2}, asked.{1}_stride_batch,\n"
        "                        asked.{1}_stride_head, asked.{1}_stride_row, {{{3}, {4}, {5}, 1{7}}},\n"
        "                        CU_TENSOR_MAP_SWIZZLE_{6}));",
        to_string(map), identifier(map.operand), extents_of(map.operand), spec->box_columns, spec->box_heads,
        spec->box_rows, spec->swizzle_bytes == 0 ? "NONE" : fmt::format("{}B", spec->swizzle_bytes),
        spec->ends_with_rows ? ", 1" : "", pairs ? fmt::format("if ({}) ", has_map(map.operand)) : "", columns);
  }
  std::string operator()(const ByTensorMap& map) const {
    return fmt::format("arguments.{} = {} ? 1 : 0;", to_string(map), has_map(map.operand));
  }
  std::string has_map(Operand operand) const {
    const int bytes = size_of(operand_shape(plan.problem, operand).element);
    const bool stored = facts_of(operand).access(plan.problem) == Access::writes;
    return fmt::format(
        "has_map(asked.{0}, {1}, asked.{0}_stride_batch, asked.{0}_stride_head, asked.{0}_stride_row, {2}){3}",
        identifier(operand), extents_of(operand), bytes,
        stored ? fmt::format(" && {} * asked.seq_kv % kRowAlignment == 0", bytes) : "");
  }
  std::string operator()(const Workspace& workspace) const {
    const std::string name(workspace.buffer.name);
    if (workspace.buffer == kTileCounter)
      return fmt::format("arguments.{} = workspace + {};", name, kTileCounterOffset);
    const auto& buffers = plan.buffers;
    const auto found = std::find_if(buffers.begin(), buffers.end(),
                                    [&](const WorkspaceBuffer& each) { return each.buffer == workspace.buffer; });
    if (found == buffers.end())
      throw Error(ErrorCode::unsupported,
                  fmt::format("a kernel that takes {}, which is no part of the workspace, is not exported", name));
    return fmt::format("arguments.{} = workspace + layout.offsets[{}];", name, found - buffers.begin());
  }
  std::string operator()(const Given&) const { return {}; }
  std::string operator()(CallValue value) const { return fmt::format("arguments.{0} = asked.{0};", to_string(value)); }
  std::string operator()(Scalar scalar) const {
    const std::string name = to_string(scalar);
    if (type_text(scalar) == "float") return fmt::format("arguments.{0} = {0}_of(kernel, call);", name);
    return fmt::format("arguments.{0} = static_cast<std::int32_t>({0}_of(kernel, call));", name);
  }
};

}  // namespace

bool rows_are_queries(Operand operand) {
  AttentionProblem grouped;  // whose operands tell by their heads what their rows are
  grouped.heads_q = 2;
  return operand_shape(grouped, operand).heads == grouped.heads_q;
}

std::string extents_of(Operand operand) {
  if (is_of_pairs(operand))
    return fmt::format("of_{}(asked)", identifier(operand == Operand::d_bias ? Operand::bias : operand));
  return rows_are_queries(operand) ? "of_queries(call)" : "of_keys(call)";
}

std::string declaration_of(const KernelArgument& field) { return std::visit(TypeOf{}, field) + to_string(field) + ";"; }

std::string value_of(const KernelArgument& field, const KernelPlan& plan, const KernelLaunch& launch) {
  return std::visit(ValueOf{plan, launch}, field);
}

}  // namespace attune
