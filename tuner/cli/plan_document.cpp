#include "tuner/cli/plan_document.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "generator/error.h"
#include "generator/plan/tensor_strides.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"

namespace attune::cli {
namespace {

std::string_view name_of(TileRows rows) {
  switch (rows) {
    case TileRows::queries:
      return "queries";
    case TileRows::keys:
      return "keys";
    case TileRows::all:
      return "all";
    case TileRows::of_batch:
      return "of batch";
    case TileRows::following:
      return "following";
    case TileRows::pairs:
      return "pairs";
  }
  return "";
}

// What the host puts into a field of a kernel's parameter.
struct SourceOf {
  const KernelPlan& plan;
  const KernelLaunch& launch;

  Json operator()(const Pointer& pointer) const { return {{"pointer", identifier(pointer.operand)}}; }
  Json operator()(const Stride& stride) const {
    return {{"value", stride_argument(plan.problem, stride, packed_strides(plan.problem, stride.operand))}};
  }
  Json operator()(const TensorMap& map) const { return {{"tensor_map", identifier(map.operand)}}; }
  Json operator()(const ByTensorMap& map) const {
    const bool fits =
        fits_tensor_map(0, operand_shape(plan.problem, map.operand), packed_strides(plan.problem, map.operand));
    return {{"value", fits ? 1 : 0}};
  }
  Json operator()(const Workspace& workspace) const {
    if (workspace.buffer == kTileCounter) return {{"workspace_offset", kTileCounterOffset}};
    return {{"workspace_offset", plan.buffer_offset(workspace.buffer, plan.problem)}};
  }
  Json operator()(const Given& given) const { return {{"given", given.name}}; }
  Json operator()(CallValue value) const { return {{"call", to_string(value)}}; }
  Json operator()(Scalar scalar) const {
    return std::visit([](auto value) { return Json{{"value", value}}; }, value_of(scalar, plan.problem, launch));
  }
};

template <typename Numbers>
Json first_of(const Numbers& numbers, int count) {
  return std::vector(numbers.begin(), numbers.begin() + count);
}

// As cuTensorMapEncodeTiled() takes it, of a tensor packed in the problem's layout. A map that ends with the rows of a
// sequence has a dimension more, and begins so many bytes before the tensor.
Json document_of(const TensorMapSpec& spec, const AttentionProblem& problem) {
  const TensorMapExtents extents =
      tensor_map_extents(spec, operand_shape(problem, spec.operand), packed_strides(problem, spec.operand));
  std::vector<std::string_view> dimensions = {"column", "head", "row", "batch"};
  if (spec.ends_with_rows) dimensions.insert(dimensions.end() - 1, "size");
  return {{"operand", identifier(spec.operand)},
          {"element_bytes", size_of(problem.dtype)},
          {"dimensions", dimensions},
          {"bytes_before", extents.bytes_before},
          {"dims", first_of(extents.dims, extents.rank)},
          {"strides_bytes", first_of(extents.strides_bytes, extents.rank - 1)},
          {"box", first_of(extents.box, extents.rank)},
          {"element_strides", std::vector<int>(static_cast<std::size_t>(extents.rank), 1)},
          {"swizzle_bytes", spec.swizzle_bytes},
          {"interleave", "none"},
          {"l2_promotion_bytes", 256},
          {"out_of_bounds", "zero"}};
}

Json document_of(const KernelLaunch& launch, const KernelPlan& plan) {
  const AttentionProblem& problem = plan.problem;
  Json arguments = Json::array();
  for (std::size_t i = 0; i < launch.arguments.fields.size(); ++i) {
    const KernelArgument& field = launch.arguments.fields[i];
    Json argument = {{"name", to_string(field)},
                     {"type", type_text(field)},
                     {"offset", launch.arguments.offsets[i]},
                     {"bytes", size_of(field)}};
    argument.update(std::visit(SourceOf{plan, launch}, field));
    arguments.push_back(std::move(argument));
  }
  Json maps = Json::array();
  for (const TensorMapSpec& spec : launch.tensor_maps) maps.push_back(document_of(spec, problem));
  const bool of_keys = launch.tile_rows == TileRows::keys;
  return {{"entry", launch.entry},
          {"arch", launch.arch},
          {"source_hash", launch.source_hash},
          {"grid_x", launch.grid_x(problem)},
          {"threads", launch.threads},
          {"grid", {launch.grid_x(problem), 1, 1}},
          {"block", {launch.threads, 1, 1}},
          {"cluster", {launch.cluster, 1, 1}},
          {"max_ctas", launch.max_ctas},
          {"programmatic_launch", launch.programmatic_launch},
          {"shared_bytes", launch.shared_bytes},
          {"rows_per_tile", launch.rows_per_tile},
          {"heads_per_tile", launch.heads_per_tile},
          {"tile_rows", name_of(launch.tile_rows)},
          {"kv_grad_per_query_head", launch.kv_grad_per_query_head},
          {of_keys ? "query_parts" : "key_parts", launch.split.parts_of(problem)},
          {of_keys ? "key_tiles" : "query_tiles", of_keys ? launch.key_tiles(problem) : launch.query_tiles(problem)},
          {"source_lines", launch.lines.size()},
          {"argument_bytes", launch.arguments.bytes},
          {"argument_alignment", launch.arguments.alignment},
          {"arguments", std::move(arguments)},
          {"tensor_maps", std::move(maps)}};
}

}  // namespace

Json plan_document(const KernelPlan& plan) {
  Json document;
  document["source_hash"] = plan.source_hash();
  document["flops"] = plan.flops;
  document["bytes"] = plan.bytes;
  document["workspace_bytes"] = plan.workspace_bytes_of(plan.problem);
  document["workspace_alignment"] = kWorkspaceAlignment;
  document["zeroed_bytes"] = plan.zeroed_bytes_of(plan.problem);
  document["workspace_buffers"] = Json::array();
  for (const WorkspaceBuffer& buffer : plan.buffers) {
    document["workspace_buffers"].push_back({{"name", buffer.buffer.name},
                                             {"offset", plan.buffer_offset(buffer.buffer, plan.problem)},
                                             {"bytes", buffer.bytes_of(plan.problem)},
                                             {"zeroed", buffer.zeroed}});
  }
  document["ordered_outputs"] = Json::array();
  for (const Operand operand : plan.ordered_outputs) document["ordered_outputs"].push_back(to_string(operand));
  document["launches"] = Json::array();
  for (const KernelLaunch& launch : plan.launches) document["launches"].push_back(document_of(launch, plan));
  return document;
}

}  // namespace attune::cli
