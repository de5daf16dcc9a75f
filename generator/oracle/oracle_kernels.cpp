#include "generator/oracle/oracle_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "generator/problem/element_type.h"
#include "generator/problem/problem_fields.h"
#include "generator/rounding.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kThreads = 256;
constexpr int kElementsPerTile = 8 * kThreads;
constexpr int kComparedRows = 64;  // of a tile of the comparison
constexpr int kSummaryFields = 5;  // of 8 bytes
constexpr std::size_t kFieldBytes = 8;
constexpr int kPairValues = 4;             // of the gradients' reference, as its kernels name them
constexpr int kGradientTiles[] = {16, 8};  // rows of a tile of the gradients' reference: the first that fits

std::string dtype_name(DataType dtype) { return std::string(facts_of(dtype).ptx); }

// `bindings` holds what only this kernel needs.
KernelLaunch oracle_launch(const std::string& name, const std::string& kernel_class, Arguments arguments,
                           std::size_t shared_bytes, TemplateBindings bindings, const DeviceSpec& device,
                           const TemplateSet& templates, KernelTarget target) {
  KernelLaunch launch;
  launch.threads = kThreads;
  launch.shared_bytes = shared_bytes;
  launch.arguments = ArgumentLayout::of(std::move(arguments));

  bindings.set("threads", kThreads);
  render_launch(name, kernel_class, device, templates, target, std::move(bindings), &launch);
  return launch;
}

// A kernel of checks: its grid is limited, each CTA leaves a partial result.
KernelLaunch check_launch(const std::string& name, const std::string& kernel_class, Arguments arguments,
                          std::size_t shared_bytes, TemplateBindings bindings, const DeviceSpec& device,
                          const TemplateSet& templates, KernelTarget target) {
  bindings.set("max_ctas", kMaxOracleCtas);
  KernelLaunch launch = oracle_launch(name, kernel_class, std::move(arguments), shared_bytes, std::move(bindings),
                                      device, templates, target);
  launch.rows_per_tile = kComparedRows;
  launch.max_ctas = kMaxOracleCtas;
  return launch;
}

// Tiles of q, dO, k and v, in rows of one double more, and kPairValues numbers of each pair of a query and a key.
std::size_t gradient_shared_bytes(const AttentionProblem& problem, int tile) {
  const std::size_t doubles = static_cast<std::size_t>(4 * tile * (problem.head_dim + 1) + kPairValues * tile * tile);
  return sizeof(double) * doubles;
}

int gradient_tile(const AttentionProblem& problem, const DeviceSpec& device) {
  for (const int tile : kGradientTiles) {
    if (gradient_shared_bytes(problem, tile) <= static_cast<std::size_t>(device.shared_bytes_per_block)) return tile;
  }
  return kGradientTiles[1];
}

}  // namespace

std::string oracle_score(const AttentionProblem& problem) { return problem.softcap != 0 ? "softcap" : "plain"; }

void bind_oracle_added(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool pairs = problem.has_pair_tensors(), any = pairs || problem.alibi;
  const auto parameter = [&](const std::string& name, bool used) {
    bindings->set("added_" + name, used ? name : "/*" + name + "*/");
  };
  parameter("args", any);
  parameter("rows", problem.alibi);
  for (const char* coordinate : {"batch", "head", "query", "key"}) parameter(coordinate, any);
  bindings->conditions["dropout"] = problem.dropout != 0;
  bindings->conditions["alibi"] = problem.alibi;
  bindings->conditions["pair_tensors"] = pairs;
  bindings->conditions["bias"] = problem.bias != PairTensor::none;
  bindings->conditions["attention_mask"] = problem.attention_mask != PairTensor::none;
  bindings->set("bias_element",
                problem.bias_fp32 ? "static_cast<double>(ld_global_f32(static_cast<const float*>(args.bias) + of_bias))"
                                  : "cvt_f64_" + dtype_name(problem.dtype) +
                                        "(ld_global_b16(static_cast<const u16*>(args.bias) + of_bias))");
}

int oracle_least_exponent(const AttentionProblem& problem) {
  const ElementFacts& element = facts_of(problem.dtype);
  constexpr int kFlushedExponent = -126;
  const int of_dtype = 1 - element.exponent_bias;
  int flushed = kFlushedExponent + element.mantissa_bits;
  if (problem.dropout != 0)
    flushed += element.rescale_threshold;  // P may be so much smaller than its row's maximum says
  return problem.sink || problem.dropout != 0 ? std::max(of_dtype, flushed) : of_dtype;
}

std::string oracle_lengths(const AttentionProblem& problem) {
  return problem.packed ? "packed" : problem.has_used_lengths() ? "used" : "whole";
}

std::string oracle_score_formula(const AttentionProblem& problem) {
  return std::string(problem.softcap != 0 ? "softcap tanh(scale q·k_j / softcap)" : "scale q·k_j") +
         (problem.alibi ? " - slope |j - diagonal|" : "") + (problem.bias != PairTensor::none ? " + bias_j" : "");
}

void append_oracle_score(Arguments* fields, const AttentionProblem& problem) {
  fields->push_back(Scalar::softmax_scale);
  if (problem.softcap != 0) fields->push_back(Scalar::softcap);
  if (problem.alibi) {
    append(fields, {Pointer{Operand::alibi_slopes}, Stride{Operand::alibi_slopes, Dimension::batch},
                    Stride{Operand::alibi_slopes, Dimension::head}});
  }
  append_pair_tensors(fields, problem);
  if (problem.dropout != 0) {
    append(fields,
           {Pointer{Operand::dropout_state}, CallValue::dropout_seed, CallValue::dropout_offset, Scalar::dropout});
  }
}

KernelLaunch generate_comparison(const OperandShape& shape, const DeviceSpec& device, const TemplateSet& templates,
                                 KernelTarget target) {
  const ElementFacts& element = facts_of(shape.element);
  const std::size_t shared_bytes = kSummaryFields * kFieldBytes * kThreads;
  TemplateBindings bindings;
  const bool fp32 = shape.element == ElementType::fp32;
  bindings.set("element", std::string(element.name));
  bindings.set("stored", fp32 ? "float" : "u16");
  bindings.set("value", fp32 ? "static_cast<double>(ld_global_f32(from))"
                             : fmt::format("cvt_f64_{}(ld_global_b16(from))", element.ptx));
  bindings.set("columns", shape.columns);
  bindings.set("rows_per_tile", kComparedRows);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  Arguments arguments = {Pointer{Operand::o}};
  append_strides(&arguments, {Operand::o});
  append(&arguments, {Workspace{kOFp64}, Workspace{kWeightFp64}, Workspace{kPartials}, kUnitRoundoff, kStoredRoundoff,
                      kSmallestStep, Scalar::heads_q, Scalar::seq_q, Scalar::query_tiles, Scalar::tiles});
  return check_launch("compare_output", fmt::format("comparison {} d{}", element.name, shape.columns),
                      std::move(arguments), shared_bytes, std::move(bindings), device, templates, target);
}

std::vector<KernelLaunch> generate_backward_reference(const AttentionProblem& problem, const DeviceSpec& device,
                                                      const TemplateSet& templates, KernelTarget target) {
  validate(problem);
  const auto launch = [&](const char* name, const char* gradients, TileRows rows, const Arguments& more) {
    const int tile = gradient_tile(problem, device);
    const std::size_t shared_bytes = gradient_shared_bytes(problem, tile);
    TemplateBindings bindings;
    AttentionProblem of_class = problem;
    of_class.alignment = 16;  // which it does not ask for
    const std::string kernel_class = fmt::format("{} of the reference of {}", gradients, kernel_class_words(of_class));
    bindings.set("dtype", dtype_name(problem.dtype));
    bindings.set("mask", std::string(to_string(problem.mask)));
    bindings.set("score", oracle_score(problem));
    bindings.set("lengths", oracle_lengths(problem));
    bindings.set("tiles_of", problem.packed ? "sequences" : "batch");
    bind_oracle_added(problem, &bindings);
    if (rows == TileRows::queries) bindings.set("score_formula", oracle_score_formula(problem));
    bindings.set("head_dim", problem.head_dim);
    bindings.set("rows_per_tile", tile);
    bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
    Arguments arguments;
    append_pointers(&arguments, {Operand::q, Operand::k, Operand::v, Operand::d_o});
    append_strides(&arguments, {Operand::q, Operand::k, Operand::v, Operand::d_o});
    append(&arguments,
           {Workspace{kLseFp64}, Workspace{kRowStatisticsFp64}, Workspace{kPartials}, kUnitRoundoff, kSmallestStep,
            Scalar::batch, Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv});
    append_lengths(&arguments, problem);
    append_mask(&arguments, problem);
    append_oracle_score(&arguments, problem);
    arguments.insert(arguments.end(), more.begin(), more.end());
    KernelLaunch made = oracle_launch(name, kernel_class, std::move(arguments), shared_bytes, std::move(bindings),
                                      device, templates, target);
    made.tile_rows = rows;
    made.rows_per_tile = tile;
    return made;
  };
  return {launch("reference_backward_queries", "dQ", TileRows::queries,
                 {Pointer{Operand::d_lse}, Workspace{kOFp64}, Workspace{kWeightFp64}, Workspace{kDqFp64},
                  Scalar::query_tiles}),
          launch("reference_backward_keys", "dK and dV", TileRows::keys,
                 {Workspace{kDkFp64}, Workspace{kDvFp64}, Scalar::key_tiles})};
}

KernelLaunch generate_bias_reference(const AttentionProblem& problem, const DeviceSpec& device,
                                     const TemplateSet& templates, KernelTarget target) {
  validate(problem);
  constexpr int kTile = 16;
  static_assert(kTile * kTile == kThreads);
  const std::size_t shared_bytes = kFieldBytes * kThreads;
  AttentionProblem of_class = problem;
  of_class.alignment = 16;  // which it does not ask for
  TemplateBindings bindings;
  bindings.set("dtype", dtype_name(problem.dtype));
  bindings.set("mask", std::string(to_string(problem.mask)));
  bindings.set("score", oracle_score(problem));
  bindings.set("lengths", oracle_lengths(problem));
  bindings.set("score_formula", oracle_score_formula(problem));
  bind_oracle_added(problem, &bindings);
  bindings.set("pair_keys", to_string(pair_keys_of(problem)));
  bindings.set("head_dim", problem.head_dim);
  bindings.set("rows_per_tile", kTile);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  Arguments arguments;
  append_pointers(&arguments, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  append_strides(&arguments, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  append(&arguments, {Workspace{kLseFp64}, Workspace{kRowStatisticsFp64}, Workspace{kDbiasFp64}, Workspace{kPartials},
                      kUnitRoundoff, kSmallestStep, Scalar::batch, Scalar::heads_q, Scalar::group_size, Scalar::seq_q,
                      Scalar::seq_kv, Scalar::key_tiles, Scalar::bias_batch, Scalar::bias_heads, Scalar::bias_rows});
  append_lengths(&arguments, problem);
  append_mask(&arguments, problem);
  append_oracle_score(&arguments, problem);
  KernelLaunch launch =
      oracle_launch("reference_backward_bias", "the bias of the reference of " + kernel_class_words(of_class),
                    std::move(arguments), shared_bytes, std::move(bindings), device, templates, target);
  launch.tile_rows = TileRows::pairs;
  launch.rows_per_tile = kTile;
  return launch;
}

KernelLaunch generate_checksum(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target) {
  const std::size_t shared_bytes = kFieldBytes * kThreads;
  TemplateBindings bindings;
  bindings.set("elements_per_tile", kElementsPerTile);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  return check_launch("checksum", "checksum", {Workspace{kElements}, kElementCount, Workspace{kPartials}}, shared_bytes,
                      std::move(bindings), device, templates, target);
}

KernelLaunch generate_random_normal(DataType dtype, const DeviceSpec& device, const TemplateSet& templates,
                                    KernelTarget target) {
  TemplateBindings bindings;
  bindings.set("dtype", dtype_name(dtype));
  bindings.set("mantissa_bits", facts_of(dtype).mantissa_bits);
  bindings.set("exponent_bias", facts_of(dtype).exponent_bias);
  bindings.set("elements_per_tile", kElementsPerTile);
  return check_launch("random_normal", "random normal numbers " + dtype_name(dtype),
                      {Workspace{kElements}, kElementCount, kCopies, kCopyStride, kSeed}, 0, std::move(bindings),
                      device, templates, target);
}

std::uint32_t grid_of_elements(std::int64_t count) {
  const std::int64_t tiles = ceil_div(count, kElementsPerTile);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(tiles, 1, kMaxOracleCtas));
}

}  // namespace attune
