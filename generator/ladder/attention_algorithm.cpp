#include "generator/ladder/attention_algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/error.h"
#include "generator/families/kernel_family.h"
#include "generator/families/shared/bindings.h"
#include "generator/families/shared/chunk_swizzle.h"
#include "generator/generate.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kWarpRows = 16;        // queries of a warp where products are
constexpr int kSoftmaxWarps = 4;     // rows of S of a CTA that takes their softmax
constexpr int kNarrowHeadDim = 128;  // up to it tiles of fa1 have 8 warps and 64 keys; beyond, registers hold half
constexpr int kRingTiles = 2;

constexpr Buffer kScores{"scores", "float*"};         // a row of S, later P, of each query
constexpr Buffer kOBlocks{"o_blocks", "float*"};      // O of the blocks of keys so far, (B, Hq, Sq, D)
constexpr Buffer kRowStates{"row_states", "float*"};  // two of each query: l and m of the blocks of keys so far

KernelConfig tiles_of(AttentionAlgorithm algorithm, const AttentionProblem& problem) {
  KernelConfig config;
  const bool fa1 = algorithm == AttentionAlgorithm::fa1, narrow = problem.head_dim <= kNarrowHeadDim;
  config.warps = fa1 && narrow ? 8 : 4;
  config.block_q = kWarpRows * config.warps;
  config.block_kv = fa1 && !narrow ? 32 : 64;
  config.stages = 1;
  return config;
}

class Launches {
 public:
  Launches(const AttentionProblem& problem, const DeviceSpec& device, const TemplateSet& templates, KernelTarget target,
           KernelPlan* plan)
      : problem_(problem),
        device_(device),
        templates_(templates),
        target_(target),
        config_(plan->config),
        swizzle_(chunk_swizzle(problem.head_dim)),
        plan_(*plan) {}

  void add_scores() {
    Arguments fields = {Pointer{Operand::q}, Pointer{Operand::k}, Workspace{kScores}};
    append_strides(&fields, {Operand::q, Operand::k});
    append(&fields, {Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::query_tiles,
                     Scalar::mask_offset});
    KernelLaunch launch = product_launch(std::move(fields));
    TemplateBindings bindings = product_bindings();
    SharedLayout shared;
    shared.add(tiles("kQOffset", "Q", 1, config_.block_q));
    shared.add(tiles("kKOffset", "K", kRingTiles, config_.block_kv));
    bindings.set("score", "plain");
    shared.bind(&bindings);
    launch.shared_bytes = shared.bytes();
    add("ladder_scores", std::move(launch), std::move(bindings));
  }

  void add_softmax(bool online) {
    KernelLaunch launch;
    launch.threads = 32 * kSoftmaxWarps;
    launch.rows_per_tile = kSoftmaxWarps;
    launch.arguments = ArgumentLayout::of({Workspace{kScores}, Pointer{Operand::lse}, Scalar::heads_q,
                                           Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::query_tiles,
                                           Scalar::mask_offset, Scalar::softmax_scale, Scalar::softmax_scale_log2});
    TemplateBindings bindings;
    bind_mask(problem_, &bindings);
    bindings.set("warps", kSoftmaxWarps);
    bindings.set("passes", online ? "online" : "safe");
    bindings.set("formulas",
                 online ? "m' = max(m, S_j)      l' = l exp(m - m') + exp(S_j - m')      key by key, in one pass"
                        : "m = max S_j           l = sum of exp(S_j - m)                 in a pass each");
    add("ladder_softmax", std::move(launch), std::move(bindings));
  }

  void add_values() {
    Arguments fields = {Pointer{Operand::v}, Pointer{Operand::o}, Workspace{kScores}};
    append_strides(&fields, {Operand::v, Operand::o});
    append(&fields, {Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::query_tiles,
                     Scalar::mask_offset});
    KernelLaunch launch = product_launch(std::move(fields));
    TemplateBindings bindings = product_bindings();
    bindings.conditions["dropout"] = false;
    bindings.set("kept_parameters", "");
    SharedLayout shared;
    shared.add(tiles("kOOffset", "O", 1, config_.block_q));
    shared.add(tiles("kVOffset", "V", kRingTiles, config_.block_kv));
    shared.bind(&bindings);
    launch.shared_bytes = shared.bytes();
    add("ladder_values", std::move(launch), std::move(bindings));
  }

  void add_fa1() {
    Arguments fields;
    append_pointers(&fields, {Operand::q, Operand::k, Operand::v, Operand::o, Operand::lse});
    append(&fields, {Workspace{kOBlocks}, Workspace{kRowStates}});
    append_strides(&fields, {Operand::q, Operand::k, Operand::v, Operand::o});
    append(&fields, {Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::mask_offset,
                     Scalar::softmax_scale, Scalar::softmax_scale_log2});
    append_dropout(&fields, problem_);
    append_dropout_scale(&fields, problem_);
    KernelLaunch launch = product_launch(std::move(fields));
    launch.tile_rows = TileRows::all;
    TemplateBindings bindings = product_bindings();
    SharedLayout shared;
    shared.add(tiles("kQOffset", "Q", 1, config_.block_q, "   later O"));
    shared.add(tiles("kKOffset", "K", 1, config_.block_kv));
    shared.add(tiles("kVOffset", "V", 1, config_.block_kv));
    bind_attention(problem_, &bindings);
    bind_key_blocks(false, false, &bindings);
    bindings.conditions["invariant"] = false;
    bind_row_end(problem_, true, &bindings);
    bind_dropout(problem_, &bindings);
    const bool drops = problem_.dropout != 0;
    bindings.set("kept_keys", drops ? ", args, dropout, block" : "");
    bindings.set("kept_parameters",
                 drops ? ", const Arguments& args, const QueryDropout (&dropout)[kRowTiles], i32 block" : "");
    bind_dropout_share(problem_, true, &bindings);  // the last visit divides by it
    bindings.set("args_of_share", "");
    shared.bind(&bindings);
    launch.shared_bytes = shared.bytes();
    add("ladder_fa1", std::move(launch), std::move(bindings));
  }

 private:
  KernelLaunch product_launch(Arguments fields) const {
    KernelLaunch launch;
    launch.threads = 32 * config_.warps;
    launch.rows_per_tile = config_.block_q;
    launch.arguments = ArgumentLayout::of(std::move(fields));
    return launch;
  }

  TemplateBindings product_bindings() const {
    TemplateBindings bindings;
    bind_mask(problem_, &bindings);
    bind_elements(problem_, &bindings);
    bindings.set("head_dim", problem_.head_dim);
    bindings.set("block_kv", config_.block_kv);
    bindings.set("warps", config_.warps);
    bindings.set("row_bytes", size_of(problem_.dtype) * problem_.head_dim);
    bindings.set("swizzle_mask", swizzle_.mask);
    bindings.set("swizzle_shift", swizzle_.shift);
    bindings.set("chunk_access", problem_.alignment >= 16 ? "chunk_async" : "chunk_elementwise");
    return bindings;
  }

  SharedBuffer tiles(const char* name, const char* label, int count, int rows, const char* note = "") const {
    const auto element_bytes = static_cast<std::size_t>(size_of(problem_.dtype));
    if (count == 1) return {name, label, {rows, problem_.head_dim}, element_bytes, note};
    return {name, label, {count, rows, problem_.head_dim}, element_bytes, note};
  }

  void add(const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    if (launch.shared_bytes > static_cast<std::size_t>(device_.shared_bytes_per_block)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} takes {} bytes of shared memory at head dim {}; a CTA of {} may have {}", name,
                              launch.shared_bytes, problem_.head_dim, device_.name, device_.shared_bytes_per_block));
    }
    render_launch(name, plan_.kernel_class, device_, templates_, target_, std::move(bindings), &launch);
    plan_.launches.push_back(std::move(launch));
  }

  const AttentionProblem& problem_;
  const DeviceSpec& device_;
  const TemplateSet& templates_;
  const KernelTarget target_;
  const KernelConfig config_;
  const ChunkSwizzle swizzle_;
  KernelPlan& plan_;
};

// What a tile of queries attends to.
struct TileKeys {
  std::int64_t rows;    // that exist
  std::int64_t blocks;  // of keys
  std::int64_t keys;    // in them
};

// The tiles of one head or, where a tile has the queries of all heads that share their keys, of these.
template <typename Body>
void for_tiles(const AttentionProblem& problem, const KernelConfig& config, const Body& body) {
  const MaskGeometry mask(problem);
  const std::int64_t group = config.pack_gqa ? problem.heads_q / problem.heads_kv : 1, all = group * problem.seq_q;
  for (std::int64_t first = 0; first < all; first += config.block_q) {
    const std::int64_t rows = std::min<std::int64_t>(config.block_q, all - first), first_query = first / group;
    const BlockRange blocks =
        mask.key_blocks(first_query, (first + rows - 1) / group - first_query + 1, config.block_kv);
    const std::int64_t end = std::min(blocks.end * config.block_kv, problem.seq_kv);
    body(TileKeys{rows, blocks.all(), std::max<std::int64_t>(0, end - blocks.begin * config.block_kv)});
  }
}

// Dropout's seed and offset, which each thread of a CTA reads.
double state_bytes(const AttentionProblem& problem, const KernelConfig& config) {
  return problem.dropout != 0 ? 2.0 * sizeof(std::int64_t) * 32 * config.warps : 0;
}

MemoryTraffic count_fa1(const AttentionProblem& problem, const KernelConfig& config) {
  const double heads = static_cast<double>(problem.batch * problem.heads_q), head_dim = problem.head_dim;
  const double queries = static_cast<double>(problem.seq_q), row = head_dim * size_of(problem.dtype);
  double visited_rows = 0, keys = 0, states = 0;
  for_tiles(problem, config, [&](const TileKeys& tile) {
    const std::int64_t visits = std::max<std::int64_t>(tile.blocks, 1);
    visited_rows += static_cast<double>(visits * tile.rows);
    keys = static_cast<double>(std::min(visits * config.block_kv, problem.seq_kv));  // the last tile sees the most
    states += static_cast<double>(visits) * state_bytes(problem, config);
  });
  const double revisited = (visited_rows - queries) * sizeof(float) * (head_dim + 2);
  return {heads * (2 * keys * row + visited_rows * row + revisited + states),
          heads * (revisited + queries * (row + sizeof(float)))};
}

}  // namespace

std::string_view to_string(AttentionAlgorithm algorithm) {
  switch (algorithm) {
    case AttentionAlgorithm::standard:
      return "standard";
    case AttentionAlgorithm::online:
      return "online";
    case AttentionAlgorithm::fa1:
      return "fa1";
    case AttentionAlgorithm::fa2:
      return "fa2";
  }
  return "";
}

AttentionAlgorithm parse_algorithm(std::string_view text) {
  for (const AttentionAlgorithm algorithm : kAttentionAlgorithms) {
    if (text == to_string(algorithm)) return algorithm;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("algorithm '{}': expected standard, online, fa1 or fa2", text));
}

KernelPlan generate(const AttentionProblem& problem, AttentionAlgorithm algorithm, const DeviceSpec& device,
                    const TemplateSet& templates, KernelTarget target) {
  validate(problem);
  if (problem.pass != Pass::forward) {
    throw Error(ErrorCode::invalid_argument, fmt::format("algorithm {} computes forward; \"{}\" is no forward problem",
                                                         to_string(algorithm), canonical_text(problem)));
  }
  // The ladder's kernels are written for the instructions of the family that serves most GPUs.
  const KernelFamily& family = general_family(Pass::forward);
  if (hides_first_keys(problem.mask)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("\"{}\": algorithms of the ladder serve a causal mask and none; take a config instead",
                            canonical_text(problem)));
  }
  if (problem.softcap != 0 || problem.adds_to_scores() || problem.has_pair_tensors() || problem.sink) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("\"{}\": algorithms of the ladder know no softcap, no ALiBi, no bias, no attention mask and no "
                    "sinks; take a config instead",
                    canonical_text(problem)));
  }
  if (problem.dropout != 0 && algorithm != AttentionAlgorithm::fa1 && algorithm != AttentionAlgorithm::fa2) {
    throw Error(ErrorCode::unsupported,
                fmt::format("\"{}\": of the ladder, fa1 and fa2 know dropout", canonical_text(problem)));
  }
  Reasons reasons;
  if (!serves(family, {problem, device}, &reasons)) throw Error(ErrorCode::unsupported, reasons.front());
  if (algorithm == AttentionAlgorithm::fa2) {
    KernelConfig config = *family.default_config({problem, device});
    config.key_parts = 1;  // one kernel, whose traffic is counted
    return generate(problem, config, device, templates, target);
  }

  KernelPlan plan;
  plan.problem = problem;
  plan.flops = count_flops(problem);
  plan.bytes = count_bytes(problem);
  plan.config = tiles_of(algorithm, problem);
  plan.kernel_class = fmt::format("{} {}", to_string(algorithm), kernel_class(problem, plan.config));
  plan.ordered_outputs = {Operand::o, Operand::lse};
  Launches launches(problem, device, templates, target, &plan);
  if (algorithm == AttentionAlgorithm::fa1) {
    const auto head_dim = static_cast<std::size_t>(problem.head_dim);
    plan.buffers.push_back({.buffer = kOBlocks, .bytes = head_dim * sizeof(float)});
    plan.buffers.push_back({.buffer = kRowStates, .bytes = 2 * sizeof(float)});
    launches.add_fa1();
  } else {
    plan.buffers.push_back({.buffer = kScores, .of_scores = true});
    launches.add_scores();
    launches.add_softmax(algorithm == AttentionAlgorithm::online);
    launches.add_values();
  }
  return plan;
}

std::vector<MemoryTraffic> count_traffic(const KernelPlan& plan, AttentionAlgorithm algorithm,
                                         const AttentionProblem& problem) {
  if (algorithm == AttentionAlgorithm::fa1) return {count_fa1(problem, plan.config)};
  const double heads = static_cast<double>(problem.batch * problem.heads_q);
  const double row = static_cast<double>(problem.head_dim) * size_of(problem.dtype);
  const double tensor = heads * static_cast<double>(problem.seq_q) * row;  // Q or O
  const double lse = heads * static_cast<double>(problem.seq_q) * sizeof(float);
  const double streams = plan.config.pack_gqa ? static_cast<double>(problem.batch * problem.heads_kv) : heads;
  double streamed = 0, states = 0;  // K or V; dropout's
  for_tiles(problem, plan.config, [&](const TileKeys& tile) {
    streamed += streams * static_cast<double>(tile.keys) * row;
    states += streams * state_bytes(problem, plan.config);
  });
  if (algorithm == AttentionAlgorithm::fa2) return {{tensor + 2 * streamed + states, tensor + lse}};
  const double scores = sizeof(float) * heads * static_cast<double>(count_attended_pairs(problem));
  const double passes = algorithm == AttentionAlgorithm::online ? 2 : 3;
  return {{tensor + streamed, scores}, {passes * scores, scores + lse}, {scores + streamed, tensor}};
}

MemoryTraffic total_traffic(const std::vector<MemoryTraffic>& launches) {
  MemoryTraffic total;
  for (const MemoryTraffic& launch : launches) {
    total.read_bytes += launch.read_bytes;
    total.written_bytes += launch.written_bytes;
  }
  return total;
}

}  // namespace attune
