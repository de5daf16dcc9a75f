#include "generator/oracle_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

constexpr int kThreads = 256;
constexpr int kElementsPerTile = 8 * kThreads;
constexpr int kComparedRows = 64;  // of a tile of the comparison
constexpr int kSummaryFields = 5;  // of 8 bytes
constexpr std::size_t kFieldBytes = 8;

std::string dtype_name(DataType dtype) { return dtype == DataType::bf16 ? "bf16" : "f16"; }

// `bindings` holds what only this kernel needs.
KernelLaunch oracle_launch(const std::string& name, std::vector<KernelArgument> arguments, std::size_t shared_bytes,
                           TemplateBindings bindings, const DeviceSpec& device, const TemplateSet& templates,
                           KernelTarget target) {
  KernelLaunch launch;
  launch.entry = "attune_" + name;
  launch.arch = arch_name(device);
  launch.target = target;
  launch.threads = kThreads;
  launch.shared_bytes = shared_bytes;
  launch.rows_per_tile = kComparedRows;
  launch.max_ctas = kMaxOracleCtas;
  launch.arguments = ArgumentLayout::of(std::move(arguments));

  const std::string root = "kernels/" + name, target_name(to_string(target));
  bindings.set("templates_hash", templates.hash_of(root, {{"target", target_name}}));
  bindings.set("entry", launch.entry);
  bindings.set("target", target_name);
  bindings.set("threads", kThreads);
  bindings.set("max_ctas", kMaxOracleCtas);
  bindings.set("argument_bytes", static_cast<std::int64_t>(launch.arguments.bytes));
  bindings.set("argument_fields", launch.arguments.declarations());
  RenderedText rendered = render(templates, root, bindings);
  launch.source = std::move(rendered.text);
  launch.lines = std::move(rendered.lines);
  return launch;
}

}  // namespace

KernelLaunch generate_comparison(const AttentionProblem& problem, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target) {
  validate(problem);
  const std::string dtype = dtype_name(problem.dtype);
  const std::size_t shared_bytes = kSummaryFields * kFieldBytes * kThreads;
  TemplateBindings bindings;
  bindings.set("kernel_class", fmt::format("comparison {} d{}", to_string(problem.dtype), problem.head_dim));
  bindings.set("dtype", dtype);
  bindings.set("head_dim", problem.head_dim);
  bindings.set("rows_per_tile", kComparedRows);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  using A = KernelArgument;
  return oracle_launch(
      "compare_forward",
      {A::o, A::o_stride_batch, A::o_stride_head, A::o_stride_row, A::o_fp64, A::weight_fp64, A::partials,
       A::unit_roundoff, A::smallest_step, A::heads_q, A::seq_q, A::query_tiles, A::tiles},
      shared_bytes, std::move(bindings), device, templates, target);
}

KernelLaunch generate_checksum(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target) {
  const std::size_t shared_bytes = kFieldBytes * kThreads;
  TemplateBindings bindings;
  bindings.set("elements_per_tile", kElementsPerTile);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  return oracle_launch("checksum", {KernelArgument::elements, KernelArgument::element_count, KernelArgument::partials},
                       shared_bytes, std::move(bindings), device, templates, target);
}

KernelLaunch generate_random_normal(DataType dtype, const DeviceSpec& device, const TemplateSet& templates,
                                    KernelTarget target) {
  const bool is_bf16 = dtype == DataType::bf16;
  TemplateBindings bindings;
  bindings.set("dtype", dtype_name(dtype));
  bindings.set("mantissa_bits", is_bf16 ? 7 : 10);
  bindings.set("exponent_bias", is_bf16 ? 127 : 15);
  bindings.set("elements_per_tile", kElementsPerTile);
  using A = KernelArgument;
  return oracle_launch("random_normal", {A::elements, A::element_count, A::copies, A::copy_stride, A::seed}, 0,
                       std::move(bindings), device, templates, target);
}

std::uint32_t grid_of_elements(std::int64_t count) {
  const std::int64_t tiles = (count + kElementsPerTile - 1) / kElementsPerTile;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(tiles, 1, kMaxOracleCtas));
}

}  // namespace attune
