#include "generator/families/shared/bindings.h"

namespace attune {
namespace {

std::string tile_order_partial(TileOrder order) {
  switch (order) {
    case TileOrder::rows:
      return "rows";
    case TileOrder::rows_reversed:
      return "rows_reversed";
    case TileOrder::heads:
      return "heads";
    case TileOrder::heads_reversed:
      return "heads_reversed";
    case TileOrder::sections:
      return "sections";
    case TileOrder::sections_reversed:
      return "sections_reversed";
  }
  return {};
}

}  // namespace

void bind_forward(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings) {
  bindings->set("dtype", problem.dtype == DataType::bf16 ? "bf16" : "f16");
  bindings->set("mask", std::string(to_string(problem.mask)));
  if (config.tile_order != TileOrder::rows && config.tile_order != TileOrder::rows_reversed)
    bindings->set("tile_heads", config.packed_heads ? "heads_kv" : "heads_q");
  bindings->set("tile_order", tile_order_partial(config.tile_order));
}

void bind_arguments(const ArgumentLayout& arguments, TemplateBindings* bindings) {
  bindings->set("argument_bytes", static_cast<std::int64_t>(arguments.bytes));
  auto& fields = bindings->lists["argument_fields"];
  for (const KernelArgument& field : arguments.fields)
    fields.push_back({{"type", std::string(type_text(field))}, {"name", to_string(field)}});
}

std::size_t section_bytes(const KernelConfig& config, const DeviceSpec& device) {
  return static_cast<std::size_t>(device.l2_bytes / config.l2_parts);
}

void bind_shared_buffer(std::size_t offset, const std::string& picture, TemplateBindings* bindings) {
  std::string number = std::to_string(offset);
  number.insert(0, number.size() < 6 ? 6 - number.size() : 0, ' ');
  bindings->lists["shared_buffers"].push_back({{"offset", number}, {"picture", picture}});
}

}  // namespace attune
