#include "generator/families/backward_sm80/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <utility>

#include "generator/device/register_limit.h"
#include "generator/error.h"
#include "generator/families/backward_sm80/cost.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/shared/bindings.h"
#include "generator/rounding.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kMaxBlock = 128;
constexpr int kMaxWarps = 8, kMaxStages = 4, kMaxCtasOfAnySm = 32;
constexpr int kMaxBlockKv =
    *std::max_element(std::begin(kKeysOfBackwardWarp), std::end(kKeysOfBackwardWarp)) * kMaxWarps;
constexpr int kMaxThreads = 128;                             // of delta and of the conversions
constexpr int kMmaRows = 16;                                 // of an instruction's result
constexpr std::size_t kStatisticsBytes = 2 * sizeof(float);  // of a query
constexpr std::size_t kTicketBytes = 16;

// Head dims and the tiles they take, by times on an H200 (templates/NOTES.md): the first that fit as many CTAs on an SM
// as they were chosen for. The rows of a head dim that follow serve smaller devices, and problems of few or short
// heads.
struct Tiles {
  int least_head_dim, most_head_dim;
  int block_q, block_kv, warps, split, stages;
  int ctas;               // of the kernel of key tiles that shared memory must hold
  bool dq_first = false;  // where it adds to dQ
};
constexpr Tiles kDefaults[] = {
    {8, 16, 32, 64, 2, 1, 2, 4},            // small CTAs, as many as registers allow
    {24, 24, 32, 96, 2, 1, 2, 4},           // 48 keys a warp where registers hold them
    {32, 32, 32, 64, 2, 1, 2, 4},           //
    {40, 40, 64, 128, 4, 1, 2, 2},          // 32 keys a warp and all columns
    {48, 56, 32, 128, 4, 1, 2, 2},          // the same; 7 chunks of columns do not halve
    {64, 64, 64, 96, 4, 2, 2, 2},           // 48 keys a warp of half of the columns
    {72, 72, 32, 128, 4, 1, 2, 2},          // nor do 9
    {80, 80, 64, 96, 4, 2, 2, 2},           //
    {88, 96, 96, 128, 8, 2, 2, 1},          // 48 keys a warp would spill
    {104, 112, 64, 64, 4, 2, 2, 2},         // the widest heads of which two CTAs fit with room
    {120, 160, 64, 128, 8, 2, 2, 1},        // 32 keys a warp of half of the columns
    {168, 176, 64, 128, 8, 2, 2, 1, true},  // spills fewer so
    {184, 184, 64, 96, 8, 4, 2, 1},         // 48 keys a warp of a quarter of the columns
    {192, 192, 64, 96, 8, 4, 2, 1, true},   //
    {200, 216, 64, 96, 8, 4, 2, 1},         //
    {224, 224, 128, 64, 8, 4, 1, 1, true},  //
    {40, 64, 32, 64, 2, 1, 2, 2},           // from here on for smaller devices and problems
    {56, 128, 64, 128, 8, 2, 2, 1},         //
    {56, 128, 64, 128, 8, 2, 1, 1},         //
    {56, 128, 64, 64, 4, 2, 2, 1},          //
    {104, 128, 64, 64, 4, 2, 3, 1},         // one CTA on an SM: few long tiles spread out better
    {56, 128, 64, 64, 4, 2, 1, 1},          //
    {56, 128, 32, 32, 4, 2, 2, 1},          //
    {40, 128, 32, 32, 2, 1, 2, 1},          //
    {8, 64, 32, 32, 1, 1, 2, 1},            //
    {136, 256, 64, 64, 8, 4, 2, 1},         // and the best for 232 to 256
    {136, 256, 64, 64, 8, 4, 1, 1},         //
    {136, 256, 64, 32, 4, 4, 1, 1},         //
    {136, 256, 32, 32, 4, 2, 1, 1},
};
// A row gives way to a later one only if the model rates that faster by more than it errs. The first were timed to be
// the best at 4096 queries and keys, which says little of short ones.
constexpr double kDoubt = 0.91, kDoubtOfShort = 0.99;
constexpr std::int64_t kShort = 600;

using Arguments = std::vector<KernelArgument>;

void add_strides(Arguments* fields, KernelArgument batch) {
  // The three strides of an operand follow each other.
  for (int i = 0; i < 3; ++i) fields->push_back(static_cast<KernelArgument>(static_cast<int>(batch) + i));
}

Arguments delta_arguments() {
  using A = KernelArgument;
  Arguments fields = {A::o, A::d_o, A::lse, A::d_lse, A::statistics};
  for (const A strides : {A::o_stride_batch, A::d_o_stride_batch}) add_strides(&fields, strides);
  fields.insert(fields.end(), {A::heads_q, A::seq_q, A::query_tiles});
  return fields;
}

Arguments convert_arguments(bool of_keys) {
  using A = KernelArgument;
  Arguments fields;
  if (of_keys) {
    fields = {A::d_k_sums, A::d_v_sums, A::d_k, A::d_v};
    for (const A strides : {A::d_k_stride_batch, A::d_v_stride_batch}) add_strides(&fields, strides);
    fields.insert(fields.end(), {A::heads_kv, A::seq_kv, A::key_tiles});
  } else {
    fields = {A::d_q_sums, A::d_q};
    add_strides(&fields, A::d_q_stride_batch);
    fields.insert(fields.end(), {A::heads_q, A::seq_q, A::query_tiles});
  }
  fields.push_back(A::softmax_scale);
  return fields;
}

// Whether CTAs of the kernel of key tiles wait for one another.
bool takes_turns(const KernelConfig& config) {
  return config.dq == QueryGradient::ordered || (config.heads_apart && config.dq == QueryGradient::own);
}

Arguments main_arguments(bool of_keys, const KernelConfig& config) {
  using A = KernelArgument;
  Arguments fields = {A::q, A::k, A::v, A::d_o, A::statistics};
  if (of_keys && config.dq != QueryGradient::own) fields.push_back(A::d_q_sums);
  if (of_keys && config.dq == QueryGradient::ordered) fields.push_back(A::turns);
  if (of_keys && takes_turns(config)) fields.push_back(A::tile_counter);
  std::vector<A> strides = {A::q_stride_batch, A::k_stride_batch, A::v_stride_batch, A::d_o_stride_batch};
  if (of_keys && config.heads_apart) {
    fields.insert(fields.end(), {A::d_k_sums, A::d_v_sums});
    if (takes_turns(config)) fields.push_back(A::key_turns);
  } else if (of_keys) {
    fields.insert(fields.end(), {A::d_k, A::d_v});
    strides.insert(strides.end(), {A::d_k_stride_batch, A::d_v_stride_batch});
  } else {
    fields.push_back(A::d_q);
    strides.push_back(A::d_q_stride_batch);
  }
  for (const A batch : strides) add_strides(&fields, batch);
  fields.insert(fields.end(), {A::heads_q, A::group_size, A::seq_q, A::seq_kv, of_keys ? A::key_tiles : A::query_tiles,
                               A::mask_offset, A::softmax_scale, A::softmax_scale_log2});
  return fields;
}

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
    KernelLaunch launch;
    const int lanes = std::max(2, row_lanes());  // so that a warp's rows divide any block
    launch.threads = kMaxThreads;
    while (config_.block_q % (launch.threads / lanes) != 0) launch.threads /= 2;
    launch.rows_per_tile = config_.block_q;
    launch.arguments = ArgumentLayout::of(delta_arguments());
    TemplateBindings bindings;
    bindings.set("threads", launch.threads);
    bindings.set("rows_per_tile", launch.rows_per_tile);
    bindings.set("row_lanes", lanes);
    bindings.set("row_access", problem_.alignment >= 16 ? "whole" : "elements");
    add("backward_delta", std::move(launch), std::move(bindings));
  }

  void add_dkdv() {
    KernelLaunch launch;
    launch.tile_rows = TileRows::keys;
    launch.threads = shape_.dkdv_threads;
    launch.rows_per_tile = config_.block_kv;
    launch.heads_apart = config_.heads_apart;
    launch.shared_bytes = shape_.dkdv_shared_bytes;
    Arguments fields = main_arguments(true, config_);
    if (config_.tile_order == TileOrder::sections) {
      fields.insert(fields.end(), {KernelArgument::batch, KernelArgument::section_heads});
      launch.section_bytes = section_bytes(config_, device_);
    }
    launch.arguments = ArgumentLayout::of(std::move(fields));
    TemplateBindings bindings =
        main_bindings(shape_.kv_tile_bytes, shape_.q_tile_bytes, {"K", "V"}, {"Q", "dO"}, config_.block_kv,
                      config_.block_q, config_.heads_apart ? Names{"", ""} : Names{"   later dK", "   later dV"});
    const bool adds = config_.dq != QueryGradient::own, apart = config_.heads_apart, turns = takes_turns(config_);
    bindings.set("warps", config_.warps);
    bindings.set("split", config_.split);
    bindings.set("dq", std::string(to_string(config_.dq)));
    bindings.set("heads", apart ? "apart" : "together");
    bindings.set("key_results", !apart ? "stored" : turns ? "ordered" : "atomic");
    bindings.set("key_tile_number", turns ? "ticket" : "block");
    bindings.set("key_tiles", config_.dq == QueryGradient::ordered        ? "rows_reversed"
                              : config_.tile_order == TileOrder::sections ? "sections"
                                                                          : "rows");
    bindings.set("tile_head", apart ? "query head" : "key/value head");
    bindings.set("loops",
                 apart ? "for each block of queries" : "for each query head of the group, for each block of queries");
    bindings.set("key_gradient_formula",
                 apart ? "dK and dV are added to sums over the group, in fp32, to be scaled by another kernel"
                       : "dK = scale·dK");
    bindings.set("query_gradient_formula",
                 adds ? "dQ = dQ + dS K, in fp32, to be scaled by another kernel" : "dQ is another kernel's");
    bindings.set("scores", shape_.p_shared ? "shared" : shape_.ds_shared ? "published" : "registers");
    bindings.set("statistics_offset", static_cast<std::int64_t>(shape_.statistics_offset));
    bind_shared_buffer(shape_.statistics_offset,
                       fmt::format("LSE and delta  [{}][{}][2], fp32", config_.stages, config_.block_q), &bindings);
    bindings.conditions["scores_shared"] = shape_.ds_shared;
    bindings.conditions["query_sums"] = adds;
    if (shape_.p_shared) {
      bindings.conditions["dq_first"] = config_.dq_first;
      bindings.conditions["dq_last"] = !config_.dq_first;
    }
    bindings.conditions["sums"] = adds || apart;
    bindings.conditions["tickets"] = turns;
    bindings.set("ticket_offset", static_cast<std::int64_t>(shape_.ticket_offset));
    const ForwardSm80Shape rows = forward_sm80_shape(rows_of_scores(), config_);
    bindings.set("score_swizzle_mask", rows.swizzle_mask);
    bindings.set("score_swizzle_shift", rows.swizzle_shift);
    bindings.set("p_offset", static_cast<std::int64_t>(shape_.p_offset));
    bindings.set("ds_offset", static_cast<std::int64_t>(shape_.ds_offset));
    const std::string tile = fmt::format("[{}][{}], transposed", config_.block_kv, config_.block_q);
    if (shape_.p_shared) bind_shared_buffer(shape_.p_offset, "P   " + tile, &bindings);
    if (shape_.ds_shared) bind_shared_buffer(shape_.ds_offset, "dS  " + tile, &bindings);
    if (turns && !shape_.ds_shared) bind_shared_buffer(shape_.ticket_offset, "number of the tile", &bindings);
    bind_shared_buffer(shape_.dkdv_shared_bytes, "end", &bindings);
    bindings.set("dq_rows", shape_.dq_rows);
    bindings.set("dq_column_parts", shape_.dq_column_parts);
    bindings.set("sums_order", sums_order());
    add("backward_dkdv_sm80", std::move(launch), std::move(bindings));
  }

  void add_dq() {
    KernelLaunch launch;
    launch.threads = shape_.dq_threads;
    launch.rows_per_tile = config_.block_q;
    launch.shared_bytes = shape_.dq_shared_bytes;
    launch.arguments = ArgumentLayout::of(main_arguments(false, config_));
    TemplateBindings bindings = main_bindings(shape_.q_tile_bytes, shape_.kv_tile_bytes, {"Q", "dO"}, {"K", "V"},
                                              config_.block_q, config_.block_kv, {"   later dQ", ""});
    bind_shared_buffer(shape_.dq_shared_bytes, "end", &bindings);
    bindings.set("threads", shape_.dq_threads);
    add("backward_dq_sm80", std::move(launch), std::move(bindings));
  }

  // Of dQ's sums, or of those of dK and dV.
  void add_convert(bool of_keys) {
    KernelLaunch launch;
    if (of_keys) launch.entry = "attune_backward_convert_keys";
    launch.tile_rows = of_keys ? TileRows::keys : TileRows::queries;
    launch.threads = kMaxThreads;
    launch.rows_per_tile = of_keys ? config_.block_kv : config_.block_q;
    launch.arguments = ArgumentLayout::of(convert_arguments(of_keys));
    TemplateBindings bindings;
    bindings.set("threads", launch.threads);
    bindings.set("rows_per_tile", launch.rows_per_tile);
    bindings.set("rows_of", of_keys ? "keys" : "queries");
    bindings.set("rows", of_keys ? "seq_kv" : "seq_q");
    bindings.set("heads", of_keys ? "heads_kv" : "heads_q");
    bindings.set("tiles", of_keys ? "key_tiles" : "query_tiles");
    auto& gradients = bindings.lists["gradients"];
    if (of_keys) {
      gradients.push_back({{"name", "d_k"}, {"scale", "args.softmax_scale"}, {"formula", "dK = scale·sums, rounded"}});
      gradients.push_back({{"name", "d_v"}, {"scale", "1.0f"}, {"formula", "dV = sums, rounded"}});
    } else {
      gradients.push_back({{"name", "d_q"}, {"scale", "args.softmax_scale"}, {"formula", "dQ = scale·sums, rounded"}});
    }
    bindings.set("chunk_access", chunk_access());
    bindings.set("sums_order", sums_order());
    add("backward_convert", std::move(launch), std::move(bindings));
  }

 private:
  using Names = std::pair<const char*, const char*>;

  // Two tiles that stay for the whole kernel, and a ring of pairs that stream past them.
  TemplateBindings main_bindings(std::size_t resident_bytes, std::size_t streamed_bytes, Names resident, Names streamed,
                                 int resident_rows, int streamed_rows, Names later) const {
    const ForwardSm80Shape rows = forward_sm80_shape(problem_, config_);  // of all tiles: the swizzle
    const std::size_t ring_bytes = static_cast<std::size_t>(config_.stages) * streamed_bytes;
    TemplateBindings bindings;
    bindings.set("mask", problem_.mask == MaskKind::causal ? "causal" : "none");
    bindings.set("block_q", config_.block_q);
    bindings.set("block_kv", config_.block_kv);
    bindings.set("stages", config_.stages);
    bindings.set("ctas_per_sm", config_.ctas_per_sm);
    bindings.set("row_bytes", rows.row_bytes);
    bindings.set("swizzle_mask", rows.swizzle_mask);
    bindings.set("swizzle_shift", rows.swizzle_shift);
    bindings.set("chunk_access", chunk_access());
    bindings.set("row_lanes", row_lanes());
    bindings.set("ring", config_.stages == 1 ? "tile_pair_ring_single" : "tile_pair_ring");
    bindings.set("streamed_tile_bytes", static_cast<std::int64_t>(streamed_bytes));
    const struct {
      const char* offset_name;
      std::size_t offset;
      std::string picture;
    } buffers[] = {
        {"resident_first_offset", 0,
         fmt::format("{}  [{}][{}]{}", resident.first, resident_rows, problem_.head_dim, later.first)},
        {"resident_second_offset", resident_bytes,
         fmt::format("{}  [{}][{}]{}", resident.second, resident_rows, problem_.head_dim, later.second)},
        {"streamed_first_offset", 2 * resident_bytes,
         fmt::format("{}  [{}][{}][{}]", streamed.first, config_.stages, streamed_rows, problem_.head_dim)},
        {"streamed_second_offset", 2 * resident_bytes + ring_bytes,
         fmt::format("{}  [{}][{}][{}]", streamed.second, config_.stages, streamed_rows, problem_.head_dim)},
    };
    for (const auto& buffer : buffers) {
      bindings.set(buffer.offset_name, static_cast<std::int64_t>(buffer.offset));
      bind_shared_buffer(buffer.offset, buffer.picture, &bindings);
    }
    return bindings;
  }

  // Threads that share a row, a chunk each.
  int row_lanes() const { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem_.head_dim / 8))); }
  std::string chunk_access() const { return problem_.alignment >= 16 ? "chunk_async" : "chunk_elementwise"; }
  std::string sums_order() const { return device_.compute_major >= 9 ? "vector" : "scalar"; }

  // Rows of the tiles of P and dS are as long as a block has queries: as if that were the head dim.
  AttentionProblem rows_of_scores() const {
    AttentionProblem rows = problem_;
    rows.head_dim = config_.block_q;
    return rows;
  }

  void add(const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    bindings.set("dtype", problem_.dtype == DataType::bf16 ? "bf16" : "f16");
    bindings.set("head_dim", problem_.head_dim);
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

void check_fields(const KernelConfig& config, std::vector<std::string>* reasons) {
  KernelConfig known = default_fields(KernelFamily::sm80);
  known.block_q = config.block_q;
  known.block_kv = config.block_kv;
  known.warps = config.warps;
  known.stages = config.stages;
  known.ctas_per_sm = config.ctas_per_sm;
  known.split = config.split;
  known.heads_apart = config.heads_apart;
  known.dq_first = config.dq_first;
  known.dq = config.dq;
  known.tile_order = config.tile_order;
  if (!(known == config))
    reasons->push_back(
        "backward knows only q, kv, w, st, order, split, apart, dq-first, dq and cta of a config; leave other words "
        "out");
  if (config.tile_order != TileOrder::rows && config.tile_order != TileOrder::sections) {
    reasons->push_back(fmt::format("order={}: of tiles of keys the first are the longest; take order=rows or sections",
                                   to_string(config.tile_order)));
  }
  if (config.tile_order == TileOrder::sections && config.dq == QueryGradient::ordered)
    reasons->push_back("order=sections dq=ordered: tiles take turns head by head; leave the order out");
  if (config.block_q < kMmaRows || config.block_q > kMaxBlock || config.block_q % kMmaRows != 0) {
    reasons->push_back(fmt::format("q{}: products come in 16 queries, so q must be a multiple of 16 from 16 to {}",
                                   config.block_q, kMaxBlock));
  }
  if (config.warps < 1 || config.warps > kMaxWarps) {
    reasons->push_back(fmt::format("w{}: a CTA of the kernel of key tiles has 1 to {} warps", config.warps, kMaxWarps));
  } else if (config.split < 1 || config.warps % config.split != 0) {
    reasons->push_back(fmt::format("split{}: must divide the {} warps", config.split, config.warps));
  } else {
    const int key_warps = config.warps / config.split;
    const auto fits = [&](int keys) { return config.block_kv == keys * key_warps; };
    if (std::none_of(std::begin(kKeysOfBackwardWarp), std::end(kKeysOfBackwardWarp), fits)) {
      const auto choices = [](int warps) {
        const auto& keys = kKeysOfBackwardWarp;
        return fmt::format("{}, {} or {}", keys[0] * warps, keys[1] * warps, keys[2] * warps);
      };
      reasons->push_back(fmt::format("kv{} w{}{}: each warp owns {} keys, so kv must be {}", config.block_kv,
                                     config.warps, config.split > 1 ? fmt::format(" split{}", config.split) : "",
                                     choices(1), choices(key_warps)));
    }
    if (config.block_q % (kMmaRows * config.split) != 0) {
      reasons->push_back(fmt::format("q{} split{}: warps that share keys take 16 queries each or a multiple of that",
                                     config.block_q, config.split));
    }
  }
  if (config.stages < 1 || config.stages > kMaxStages)
    reasons->push_back(fmt::format("st{}: must be 1 to {}", config.stages, kMaxStages));
  if (config.ctas_per_sm < 1 || config.ctas_per_sm > kMaxCtasOfAnySm)
    reasons->push_back(fmt::format("cta{}: must be 1 to {}", config.ctas_per_sm, kMaxCtasOfAnySm));
}

void check_kernel(const char* name, int threads, std::size_t shared_bytes, int registers, const KernelConfig& config,
                  const DeviceSpec& device, std::vector<std::string>* reasons) {
  const int ctas = config.ctas_per_sm;
  if (ctas > device.ctas_per_sm || ctas * threads > device.threads_per_sm) {
    reasons->push_back(
        fmt::format("cta{}: {} CTAs of {} threads ({}) do not fit an SM of {}, which takes {} CTAs and "
                    "{} threads",
                    ctas, ctas, threads, name, device.name, device.ctas_per_sm, device.threads_per_sm));
    return;
  }
  const auto of_sm =
      static_cast<std::size_t>(ctas) * (shared_bytes + static_cast<std::size_t>(device.shared_bytes_reserved));
  if (shared_bytes > static_cast<std::size_t>(device.shared_bytes_per_block) ||
      of_sm > static_cast<std::size_t>(device.shared_bytes_per_sm)) {
    reasons->push_back(
        fmt::format("shared memory: {} takes {} bytes of each of {} CTAs; a CTA of {} may have {}, an "
                    "SM {}",
                    name, shared_bytes, ctas, device.name, device.shared_bytes_per_block, device.shared_bytes_per_sm));
  }
  const int limit = register_limit(threads, ctas, device);
  if (registers > limit - kWorkingRegisters) {
    reasons->push_back(
        fmt::format("registers: accumulators of {} take {} registers of a thread beside at least {} "
                    "others; it may have {} with {} CTAs of {} threads on an SM",
                    name, registers, kWorkingRegisters, limit, ctas, threads));
  }
}

// Under a causal mask the longest tiles of several heads come first, lest the last head begin with its longest when all
// others are done; with a section of one head that would be the order of rows.
TileOrder default_order(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  if (problem.deterministic || problem.mask == MaskKind::none) return TileOrder::rows;
  return backward_section_heads(problem, config, device) > 1 ? TileOrder::sections : TileOrder::rows;
}

// Whether a group's heads have tiles of their own: it fills the SMs where common tiles are few, and pays for sums in
// fp32: dK and dV of each query head, in place of one's of each group, zeros, adds and one more launch.
bool heads_apart_by_default(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device) {
  if (problem.heads_q == problem.heads_kv) return false;
  const auto time = [&](bool apart) {
    config.heads_apart = apart;
    config.tile_order = default_order(problem, config, device);
    return estimate_cost_backward(problem, config, device).microseconds;
  };
  return time(true) < time(false);
}

}  // namespace

BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config) {
  BackwardSm80Shape shape;
  const int head_dim = problem.head_dim, chunks = head_dim / 8;
  const int rows = config.block_kv / (config.warps / config.split);
  shape.dq_threads = 32 * (config.block_q / kMmaRows);
  shape.dkdv_threads = 32 * config.warps;
  const bool adds = config.dq != QueryGradient::own;
  shape.p_shared = config.split > 1;
  shape.ds_shared = shape.p_shared || adds;

  const std::size_t row_bytes = 2 * static_cast<std::size_t>(head_dim),
                    stages = static_cast<std::size_t>(config.stages);
  shape.q_tile_bytes = static_cast<std::size_t>(config.block_q) * row_bytes;
  shape.kv_tile_bytes = static_cast<std::size_t>(config.block_kv) * row_bytes;
  shape.dq_shared_bytes = 2 * (shape.q_tile_bytes + stages * shape.kv_tile_bytes);
  shape.score_tile_bytes = static_cast<std::size_t>(2 * config.block_kv * config.block_q);
  shape.statistics_offset = 2 * (shape.kv_tile_bytes + stages * shape.q_tile_bytes);
  shape.p_offset = shape.statistics_offset + stages * kStatisticsBytes * static_cast<std::size_t>(config.block_q);
  shape.ds_offset = shape.p_offset + (shape.p_shared ? shape.score_tile_bytes : 0);
  shape.ticket_offset = shape.ds_offset;
  const std::size_t ticket_bytes = takes_turns(config) ? kTicketBytes : 0;
  shape.dkdv_shared_bytes = shape.ds_offset + (shape.ds_shared ? shape.score_tile_bytes : ticket_bytes);

  // fp32 accumulators spread over 32 lanes: S, dP, and the columns of the gradients.
  const auto part_columns = [&](int parts) { return 8 * ceil_div(chunks, parts); };
  shape.dq_registers = kMmaRows * (head_dim + 2 * config.block_kv) / 32;
  const int key_gradients = 2 * rows * part_columns(config.split) / 32;
  const int scores = 2 * rows * (config.block_q / config.split) / 32;
  shape.dkdv_registers = key_gradients + scores;
  if (adds) {
    // A warp's part of dQ is as square as may be: a product reads its rows and its columns from shared memory.
    for (int row_parts = 1; row_parts <= config.warps; ++row_parts) {
      if (config.warps % row_parts != 0 || config.block_q % (kMmaRows * row_parts) != 0) continue;
      const int dq_rows = config.block_q / row_parts, column_parts = config.warps / row_parts;
      if (shape.dq_rows != 0 &&
          dq_rows + part_columns(column_parts) >= shape.dq_rows + part_columns(shape.dq_column_parts))
        continue;
      shape.dq_rows = dq_rows;
      shape.dq_column_parts = column_parts;
    }
    const int dq = shape.dq_rows * part_columns(shape.dq_column_parts) / 32;
    shape.dkdv_registers = key_gradients + std::max(scores, dq);
  }
  return shape;
}

std::vector<std::string> backward_sm80_infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                                     const DeviceSpec& device) {
  std::vector<std::string> reasons;
  if (device.compute_major < 8) {
    reasons.push_back(fmt::format("{} has compute capability {}.{}; family {} needs 8.0 or newer", device.name,
                                  device.compute_major, device.compute_minor, to_string(config.family)));
  }
  check_fields(config, &reasons);
  if (!reasons.empty()) return reasons;
  if (problem.deterministic && config.dq == QueryGradient::atomic) {
    reasons.push_back(
        "dq=atomic deterministic: adds as they come give other bits at each run; take dq=ordered, or leave the word "
        "out");
  }
  if (config.heads_apart && problem.heads_q == problem.heads_kv)
    reasons.push_back("apart: every query head has keys of its own already; leave the word out");
  if (config.dq_first && (config.split == 1 || config.dq == QueryGradient::own)) {
    reasons.push_back(
        "dq-first: only where warps share keys (splitN) and add to dQ (dq=atomic|ordered) can its product come first; "
        "leave the word out");
  }
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  if (config.dq == QueryGradient::own)
    check_kernel("dQ", shape.dq_threads, shape.dq_shared_bytes, shape.dq_registers, config, device, &reasons);
  check_kernel("dK and dV", shape.dkdv_threads, shape.dkdv_shared_bytes, shape.dkdv_registers, config, device,
               &reasons);
  return reasons;
}

std::int32_t backward_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  KernelLaunch launch;
  launch.tile_rows = TileRows::keys;
  launch.heads_apart = config.heads_apart;
  launch.section_bytes = section_bytes(config, device);
  return launch.section_heads(problem);
}

KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device) {
  KernelConfig config = default_fields(KernelFamily::sm80);
  const double doubt = std::min(problem.seq_q, problem.seq_kv) <= kShort ? kDoubtOfShort : kDoubt;
  std::optional<KernelConfig> best;
  double least = 0;
  for (const Tiles& tiles : kDefaults) {
    if (problem.head_dim < tiles.least_head_dim || problem.head_dim > tiles.most_head_dim) continue;
    config.block_q = tiles.block_q;
    config.block_kv = tiles.block_kv;
    config.warps = tiles.warps;
    config.split = tiles.split;
    config.stages = tiles.stages;
    // Where walks are short, sums of dQ in memory cost more than S and dP computed twice.
    for (const QueryGradient dq :
         {problem.deterministic ? QueryGradient::ordered : QueryGradient::atomic, QueryGradient::own}) {
      config.dq = dq;
      config.dq_first = tiles.dq_first && dq != QueryGradient::own;
      config.heads_apart = false;
      config.tile_order = default_order(problem, config, device);
      if (!backward_sm80_infeasibility(problem, config, device).empty()) continue;
      const std::size_t bytes = backward_sm80_shape(problem, config).dkdv_shared_bytes;
      const auto of_sm =
          static_cast<std::size_t>(tiles.ctas) * (bytes + static_cast<std::size_t>(device.shared_bytes_reserved));
      if (of_sm > static_cast<std::size_t>(device.shared_bytes_per_sm)) continue;
      config.heads_apart = heads_apart_by_default(problem, config, device);
      config.tile_order = default_order(problem, config, device);
      const double microseconds = estimate_cost_backward(problem, config, device).microseconds;
      if (best && microseconds >= doubt * least) continue;
      best = config;
      least = microseconds;
    }
  }
  if (best) return *best;
  throw Error(ErrorCode::unsupported,
              fmt::format("no backward config of head dim {} fits {}: {}", problem.head_dim, device.name,
                          backward_sm80_infeasibility(problem, config, device).front()));
}

void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan) {
  Launches launches(problem, config, device, templates, target, plan);
  launches.add_delta();
  launches.add_dkdv();
  const bool apart = config.heads_apart, unordered = config.dq == QueryGradient::atomic;
  const auto rows = static_cast<std::size_t>(config.block_q);
  const std::size_t row_bytes = sizeof(float) * static_cast<std::size_t>(problem.head_dim);
  if (config.dq == QueryGradient::own) {
    launches.add_dq();
  } else {
    launches.add_convert(false);
    plan->buffers.push_back({KernelArgument::d_q_sums, rows * row_bytes, config.block_q, true});
  }
  if (apart) {
    launches.add_convert(true);
    const std::size_t bytes = static_cast<std::size_t>(config.block_kv) * row_bytes;
    for (const KernelArgument sums : {KernelArgument::d_k_sums, KernelArgument::d_v_sums})
      plan->buffers.push_back({sums, bytes, config.block_kv, true, TileRows::keys});
  }
  if (config.dq == QueryGradient::ordered)
    plan->buffers.push_back({KernelArgument::turns, sizeof(std::uint32_t), config.block_q, true});
  if (apart && !unordered)
    plan->buffers.push_back({KernelArgument::key_turns, sizeof(std::uint32_t), config.block_kv, true, TileRows::keys});
  if (takes_turns(config)) {
    plan->workspace_bytes = kTileCounterOffset + sizeof(std::uint32_t);
    plan->workspace_zeroed = true;
  }
  if (!apart || !unordered) plan->ordered_outputs = {Operand::d_k, Operand::d_v};
  if (!unordered) plan->ordered_outputs.push_back(Operand::d_q);
  plan->buffers.push_back({KernelArgument::statistics, kStatisticsBytes * rows, config.block_q, false});
}

std::size_t backward_sm80_most_workspace_bytes(const AttentionProblem& problem) {
  KernelPlan plan;
  const auto columns = static_cast<std::size_t>(problem.head_dim);
  AttentionProblem padded = problem;
  padded.seq_q += kMaxBlock - 1;  // rounded up to any block
  padded.seq_kv += kMaxBlockKv - 1;
  plan.workspace_bytes = kTileCounterOffset + sizeof(std::uint32_t);
  plan.buffers = {{KernelArgument::d_q_sums, sizeof(float) * columns, 1, true},
                  {KernelArgument::turns, sizeof(std::uint32_t), kMmaRows, true},
                  {KernelArgument::statistics, kStatisticsBytes, 1, false}};
  if (problem.heads_q != problem.heads_kv) {
    for (const KernelArgument sums : {KernelArgument::d_k_sums, KernelArgument::d_v_sums})
      plan.buffers.push_back({sums, sizeof(float) * columns, 1, true, TileRows::keys});
    plan.buffers.push_back({KernelArgument::key_turns, sizeof(std::uint32_t), kMmaRows, true, TileRows::keys});
  }
  return plan.workspace_bytes_of(padded);
}

}  // namespace attune
