#include "generator/families/backward_sm80/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "generator/families/backward_common/bias.h"
#include "generator/families/backward_common/convert.h"
#include "generator/families/backward_common/delta.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/sinks.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm80/shape.h"
#include "generator/families/shared/bindings.h"
#include "generator/families/shared/chunk_swizzle.h"
#include "generator/families/shared/rows.h"
#include "generator/rounding.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kMaxBlockKv =
    *std::max_element(std::begin(kKeysOfBackwardWarp), std::end(kKeysOfBackwardWarp)) * kMaxBackwardWarps;
static_assert(kMaxBlockKv <= kMostKeysOfTile);

Arguments main_arguments(bool of_keys, const AttentionProblem& problem, const KernelConfig& config) {
  Arguments fields, strides;
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  fields.push_back(Workspace{kStatistics});
  if (of_keys && config.dq != DqAccumulation::separate_kernel) fields.push_back(Workspace{kDqSums});
  if (of_keys && config.dq == DqAccumulation::ordered) fields.push_back(Workspace{kDqTickets});
  if (of_keys && takes_tickets(config)) fields.push_back(Workspace{kTileCounter});
  if (of_keys && problem.packed) fields.push_back(Workspace{kKeyTileList});
  append_strides(&strides, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  if (of_keys && adds_key_sums(config)) {
    append(&fields, {Workspace{kDkSums}, Workspace{kDvSums}});
    if (takes_tickets(config)) fields.push_back(Workspace{kDkdvTickets});
  } else if (of_keys) {
    append_pointers(&fields, {Operand::d_k, Operand::d_v});
    append_strides(&strides, {Operand::d_k, Operand::d_v});
  } else {
    append_pointers(&fields, {Operand::d_q});
    append_strides(&strides, {Operand::d_q});
  }
  fields.insert(fields.end(), strides.begin(), strides.end());
  append(&fields, {Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv,
                   of_keys ? Scalar::key_tiles : Scalar::query_tiles});
  append_lengths(&fields, problem);
  if (problem.packed) fields.push_back(Scalar::batch);
  append_mask(&fields, problem);
  append(&fields, {Scalar::softmax_scale, Scalar::softmax_scale_log2});
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  append_dropout_scale(&fields, problem);
  return fields;
}

constexpr StatisticsOrder kOrder = StatisticsOrder::pairs;

class Launches {
 public:
  Launches(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
           const TemplateSet& templates, KernelTarget target, KernelPlan* plan)
      : problem_(problem),
        config_(config),
        device_(device),
        templates_(templates),
        target_(target),
        shape_(backward_sm80_shape(problem, config)),
        plan_(*plan) {}

  void add_delta() {
    TemplateBindings bindings;
    KernelLaunch launch = delta_launch(problem_, config_, device_, kOrder, false, &bindings);
    add("backward_delta", std::move(launch), std::move(bindings));
  }

  void add_dkdv() {
    KernelLaunch launch;
    launch.tile_rows = TileRows::keys;
    launch.threads = shape_.dkdv_threads;
    launch.rows_per_tile = config_.block_kv;
    launch.kv_grad_per_query_head = adds_key_sums(config_);
    launch.split.parts = config_.query_parts;
    launch.shared_bytes = shape_.dkdv_shared.bytes();
    Arguments fields = main_arguments(true, problem_, config_);
    if (config_.tile_order == TileOrder::l2_sections) {
      if (!problem_.packed) fields.push_back(Scalar::batch);
      fields.push_back(Scalar::section_heads);
      set_key_tile_sections(config_, device_, &launch);
    }
    launch.arguments = ArgumentLayout::of(std::move(fields));
    TemplateBindings bindings = main_bindings(true, shape_.dkdv_shared, shape_.q_tile_bytes);
    const bool adds = config_.dq != DqAccumulation::separate_kernel;
    bindings.set("warps", config_.warps);
    bindings.set("query_warps", config_.query_warps);
    bindings.set("dq", partial_name(to_string(config_.dq)));
    bindings.set("tile_keys", "kBlockKv");
    bind_key_tiles(problem_, config_, &bindings);
    bindings.set("query_gradient_formula",
                 adds ? "dQ = dQ + dS K, in fp32, to be scaled by another kernel" : "dQ is another kernel's");
    bindings.set("scores", shape_.p_shared ? "shared" : shape_.ds_shared ? "ds_shared" : "registers");
    bindings.conditions["scores_shared"] = shape_.ds_shared;
    bindings.conditions["query_sums"] = adds;
    if (shape_.p_shared) {
      bindings.conditions["dq_first"] = config_.dq_first;
      bindings.conditions["dq_last"] = !config_.dq_first;
    }
    bindings.conditions["sums"] = adds || adds_key_sums(config_);
    const ChunkSwizzle scores = chunk_swizzle(config_.block_q);  // a row of P or dS is as long as a block has queries
    bindings.set("score_swizzle_mask", scores.mask);
    bindings.set("score_swizzle_shift", scores.shift);
    if (!adds_key_sums(config_)) {
      bindings.set("dk_scale", ds_scale(problem_, config_));
      bindings.set("dv_scale", dv_scale(problem_));
    }
    bindings.set("dq_rows", shape_.dq_rows);
    bindings.set("dq_column_parts", shape_.dq_column_parts);
    bindings.set("sums_order", sums_order(device_));
    add("backward_dkdv_sm80", std::move(launch), std::move(bindings));
  }

  void add_dq() {
    KernelLaunch launch;
    launch.threads = shape_.dq_threads;
    launch.rows_per_tile = config_.block_q;
    launch.shared_bytes = shape_.dq_shared.bytes();
    launch.arguments = ArgumentLayout::of(main_arguments(false, problem_, config_));
    TemplateBindings bindings = main_bindings(false, shape_.dq_shared, shape_.kv_tile_bytes);
    bindings.set("threads", shape_.dq_threads);
    bind_key_blocks(false, false, &bindings);
    bindings.set("per_share", per_share(problem_));
    add("backward_dq_sm80", std::move(launch), std::move(bindings));
  }

  void add_sinks() {
    TemplateBindings bindings;
    KernelLaunch launch = sinks_launch(problem_, config_.block_q, kOrder, SinksStart::after, &bindings);
    render("backward_sinks", std::move(launch), std::move(bindings));
  }

  void add_bias() {
    TemplateBindings bindings;
    KernelLaunch launch = bias_launch(problem_, device_, config_.block_q, kOrder, &bindings);
    render("backward_bias", std::move(launch), std::move(bindings));
  }

  // Converts the sums of dQ, or those of dK and dV.
  void add_convert(bool of_keys) {
    TemplateBindings bindings;
    KernelLaunch launch = convert_launch(problem_, config_, device_, of_keys, false, false, false, &bindings);
    add("backward_convert", std::move(launch), std::move(bindings));
  }

 private:
  // Two tiles that stay for the whole kernel, and a ring of pairs that stream past them.
  TemplateBindings main_bindings(bool of_keys, const SharedLayout& shared, std::size_t streamed_bytes) const {
    const ChunkSwizzle swizzle = chunk_swizzle(problem_.head_dim);
    TemplateBindings bindings;
    bind_attention(problem_, &bindings);
    of_keys ? bind_score_gradient(problem_, &bindings) : bind_exponent_terms(problem_, &bindings);
    bind_dropout(problem_, &bindings);
    bind_terms_of_step(of_keys, &bindings);
    bind_head_dims(problem_, &bindings);
    bindings.conditions["packed_sequences"] = problem_.packed;
    bind_sequence_words(problem_, &bindings);
    bindings.set("block_q", config_.block_q);
    bindings.set("block_kv", config_.block_kv);
    bindings.set("stages", config_.stages);
    bindings.set("ctas_per_sm", config_.ctas_per_sm);
    bindings.set("row_bytes", size_of(problem_.dtype) * problem_.head_dim);
    bindings.set("swizzle_mask", swizzle.mask);
    bindings.set("swizzle_shift", swizzle.shift);
    bindings.set("chunk_access", chunk_access(problem_));
    bindings.set("row_lanes", row_lanes(problem_));
    bindings.set("ring", config_.stages == 1 ? "tile_pair_ring_single" : "tile_pair_ring");
    bindings.set("streamed_tile_bytes", static_cast<std::int64_t>(streamed_bytes));
    shared.bind(&bindings);
    return bindings;
  }

  // What steps are told of the head, and what they ask ExponentTerms.
  void bind_terms_of_step(bool of_keys, TemplateBindings* bindings) const {
    const bool pairs = problem_.has_pair_tensors(), alibi = problem_.alibi, terms = pairs || alibi;
    const auto if_terms = [&](const char* text) { return terms ? text : ""; };
    const std::string dropout = problem_.dropout == 0 ? ""
                                : of_keys             ? ", const KeyDropout (&dropout)[kRowTiles]"
                                                      : ", const QueryDropout& dropout";
    bindings->set("head_parameters", std::string(if_terms(", i32 head")) + (alibi ? ", float slope" : "") + dropout);
    bindings->set("and_head",
                  std::string(if_terms(", head")) + (alibi ? ", slope" : "") + (dropout.empty() ? "" : ", dropout"));
    bindings->set("and_gain",
                  if_terms(of_keys ? ", terms.gain(8 * n + i % 2, 8 * (i / 2))" : ", terms.gain(0, 8 * n + e)"));
    if (of_keys) {
      bindings->set("terms_parameter", if_terms(", const ExponentTerms& terms"));
      bindings->set("and_terms", if_terms(", terms"));
    }
    bind_terms_of_pair(problem_, bindings);
  }

  void add(const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    bind_elements(problem_, &bindings);
    render(name, std::move(launch), std::move(bindings));
  }

  void render(const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    render_launch(name, plan_.kernel_class, device_, templates_, target_, std::move(bindings), &launch);
    plan_.launches.push_back(std::move(launch));
  }

  const AttentionProblem& problem_;
  const KernelConfig& config_;
  const DeviceSpec& device_;
  const TemplateSet& templates_;
  const KernelTarget target_;
  const BackwardSm80Shape shape_;
  KernelPlan& plan_;
};

}  // namespace

void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan) {
  Launches launches(problem, config, device, templates, target, plan);
  launches.add_delta();
  launches.add_dkdv();
  if (config.dq == DqAccumulation::separate_kernel) {
    launches.add_dq();
  } else {
    launches.add_convert(false);
  }
  if (adds_key_sums(config)) launches.add_convert(true);
  if (problem.sink) launches.add_sinks();
  if (problem.bias_gradient) launches.add_bias();
  describe_backward_workspace(problem, config, plan);
}

std::size_t backward_sm80_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device) {
  return most_backward_workspace_bytes(problem, device, kMaxBackwardBlock, kMaxBlockKv);
}

}  // namespace attune
