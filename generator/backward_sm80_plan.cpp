#include "generator/backward_sm80_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/error.h"
#include "generator/forward_bindings.h"
#include "generator/forward_sm80_shape.h"
#include "generator/register_limit.h"

namespace attune {
namespace {

constexpr int kMaxBlock = 128;
constexpr int kMaxWarps = 8, kMaxStages = 4;
constexpr int kMaxColumnsOfWarp = 128;  // of dK and dV: 128 accumulators of a thread for 16 keys
constexpr int kDeltaThreads = 128, kDeltaRows = 32;

using Arguments = std::vector<KernelArgument>;

void add_strides(Arguments* fields, KernelArgument batch) {
  // The three strides of an operand follow each other.
  for (int i = 0; i < 3; ++i) fields->push_back(static_cast<KernelArgument>(static_cast<int>(batch) + i));
}

Arguments delta_arguments() {
  using A = KernelArgument;
  Arguments fields = {A::o, A::d_o, A::lse, A::d_lse, A::delta};
  for (const A strides : {A::o_stride_batch, A::d_o_stride_batch}) add_strides(&fields, strides);
  fields.insert(fields.end(), {A::heads_q, A::seq_q, A::query_tiles});
  return fields;
}

Arguments main_arguments(bool of_keys) {
  using A = KernelArgument;
  Arguments fields = {A::q, A::k, A::v, A::d_o, A::lse, A::delta};
  std::vector<A> strides = {A::q_stride_batch, A::k_stride_batch, A::v_stride_batch, A::d_o_stride_batch};
  if (of_keys) {
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
    launch.threads = kDeltaThreads;
    launch.rows_per_tile = kDeltaRows;
    launch.arguments = ArgumentLayout::of(delta_arguments());
    TemplateBindings bindings;
    bindings.set("threads", kDeltaThreads);
    bindings.set("rows_per_tile", kDeltaRows);
    add("backward_delta", std::move(launch), std::move(bindings));
  }

  void add_dkdv() {
    KernelLaunch launch;
    launch.tile_rows = TileRows::keys;
    launch.threads = shape_.dkdv_threads;
    launch.rows_per_tile = config_.block_kv;
    launch.shared_bytes = shape_.dkdv_shared_bytes;
    launch.arguments = ArgumentLayout::of(main_arguments(true));
    TemplateBindings bindings =
        main_bindings(shape_.kv_tile_bytes, shape_.q_tile_bytes, shape_.dkdv_shared_bytes, {"K", "V"}, {"Q", "dO"},
                      config_.block_kv, config_.block_q, "   later dV");
    bindings.set("warps", config_.warps);
    bindings.set("column_parts", shape_.column_parts);
    add("backward_dkdv_sm80", std::move(launch), std::move(bindings));
  }

  void add_dq() {
    KernelLaunch launch;
    launch.threads = shape_.dq_threads;
    launch.rows_per_tile = config_.block_q;
    launch.shared_bytes = shape_.dq_shared_bytes;
    launch.arguments = ArgumentLayout::of(main_arguments(false));
    TemplateBindings bindings = main_bindings(shape_.q_tile_bytes, shape_.kv_tile_bytes, shape_.dq_shared_bytes,
                                              {"Q", "dO"}, {"K", "V"}, config_.block_q, config_.block_kv, "");
    bindings.set("threads", shape_.dq_threads);
    add("backward_dq_sm80", std::move(launch), std::move(bindings));
  }

 private:
  using Names = std::pair<const char*, const char*>;

  // Two tiles that stay for the whole kernel, and a ring of pairs that stream past them.
  TemplateBindings main_bindings(std::size_t resident_bytes, std::size_t streamed_bytes, std::size_t shared_bytes,
                                 Names resident, Names streamed, int resident_rows, int streamed_rows,
                                 const char* second_later) const {
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
    bindings.set("chunk_access", problem_.alignment >= 16 ? "chunk_async" : "chunk_elementwise");
    bindings.set("streamed_tile_bytes", static_cast<std::int64_t>(streamed_bytes));
    const struct {
      const char* offset_name;
      std::size_t offset;
      std::string picture;
    } buffers[] = {
        {"resident_first_offset", 0,
         fmt::format("{}  [{}][{}]   later d{}", resident.first, resident_rows, problem_.head_dim, resident.first)},
        {"resident_second_offset", resident_bytes,
         fmt::format("{}  [{}][{}]{}", resident.second, resident_rows, problem_.head_dim, second_later)},
        {"streamed_first_offset", 2 * resident_bytes,
         fmt::format("{}  [{}][{}][{}]", streamed.first, config_.stages, streamed_rows, problem_.head_dim)},
        {"streamed_second_offset", 2 * resident_bytes + ring_bytes,
         fmt::format("{}  [{}][{}][{}]", streamed.second, config_.stages, streamed_rows, problem_.head_dim)},
    };
    for (const auto& buffer : buffers) {
      bindings.set(buffer.offset_name, static_cast<std::int64_t>(buffer.offset));
      bind_shared_buffer(buffer.offset, buffer.picture, &bindings);
    }
    bind_shared_buffer(shared_bytes, "end", &bindings);
    return bindings;
  }

  void add(const std::string& name, KernelLaunch launch, TemplateBindings bindings) {
    const std::string root = "kernels/" + name, target(to_string(target_));
    launch.entry = "attune_" + name;
    launch.arch = arch_name(device_);
    launch.target = target_;
    bindings.set("kernel_class", plan_.kernel_class);
    bindings.set("templates_hash", templates_.hash_of(root, {{"target", target}}));
    bindings.set("entry", launch.entry);
    bindings.set("target", target);
    bindings.set("dtype", problem_.dtype == DataType::bf16 ? "bf16" : "f16");
    bindings.set("head_dim", problem_.head_dim);
    bind_arguments(launch.arguments, &bindings);
    RenderedText rendered = render(templates_, root, bindings);
    launch.source = std::move(rendered.text);
    launch.lines = std::move(rendered.lines);
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
  if (!(known == config))
    reasons->push_back("backward knows only q, kv, w, st and cta of a config; leave other words out");
  if (config.block_q < 16 || config.block_q > kMaxBlock || config.block_q % 16 != 0) {
    reasons->push_back(
        fmt::format("q{}: each warp of the kernel of dQ owns 16 queries, so q must be a multiple of 16 "
                    "from 16 to {}",
                    config.block_q, kMaxBlock));
  }
  const bool warps_fit = config.warps >= 1 && config.warps <= kMaxWarps;
  if (!warps_fit)
    reasons->push_back(fmt::format("w{}: 1 to {} warps share the keys of a tile", config.warps, kMaxWarps));
  if (warps_fit && config.block_kv != 16 * config.warps && config.block_kv != 32 * config.warps) {
    reasons->push_back(fmt::format("kv{} w{}: each warp owns 16 or 32 keys, so kv must be {} or {}", config.block_kv,
                                   config.warps, 16 * config.warps, 32 * config.warps));
  }
  if (config.stages < 1 || config.stages > kMaxStages)
    reasons->push_back(fmt::format("st{}: must be 1 to {}", config.stages, kMaxStages));
  if (config.ctas_per_sm < 1) reasons->push_back(fmt::format("cta{}: must be at least 1", config.ctas_per_sm));
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

}  // namespace

BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config) {
  BackwardSm80Shape shape;
  const int head_dim = problem.head_dim, chunks = head_dim / 8;
  const int rows = config.block_kv / config.warps;
  while (rows / 16 * head_dim > kMaxColumnsOfWarp * shape.column_parts) shape.column_parts *= 2;
  shape.dq_threads = 32 * (config.block_q / 16);
  shape.dkdv_threads = 32 * config.warps * shape.column_parts;

  const auto row_bytes = static_cast<std::size_t>(2 * head_dim), stages = static_cast<std::size_t>(config.stages);
  shape.q_tile_bytes = static_cast<std::size_t>(config.block_q) * row_bytes;
  shape.kv_tile_bytes = static_cast<std::size_t>(config.block_kv) * row_bytes;
  shape.dq_shared_bytes = 2 * (shape.q_tile_bytes + stages * shape.kv_tile_bytes);
  shape.dkdv_shared_bytes = 2 * (shape.kv_tile_bytes + stages * shape.q_tile_bytes);

  // fp32 accumulators spread over 32 lanes: S, dP, and the columns of the gradients.
  const int part_columns = 8 * ((chunks + shape.column_parts - 1) / shape.column_parts);
  shape.dq_registers = 16 * (head_dim + 2 * config.block_kv) / 32;
  shape.dkdv_registers = rows * (2 * part_columns + 2 * config.block_q) / 32;
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
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  check_kernel("dQ", shape.dq_threads, shape.dq_shared_bytes, shape.dq_registers, config, device, &reasons);
  check_kernel("dK and dV", shape.dkdv_threads, shape.dkdv_shared_bytes, shape.dkdv_registers, config, device,
               &reasons);
  return reasons;
}

KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device) {
  KernelConfig config = default_fields(KernelFamily::sm80);
  config.block_q = problem.head_dim > 64 ? 32 : 64;  // with more, S and dP spill
  config.block_kv = 64;
  config.warps = 4;
  config.stages = 2;
  const auto fits = [&] { return backward_sm80_infeasibility(problem, config, device).empty(); };
  if (!fits()) config.stages = 1;
  while (!fits() && config.warps > 1) {
    config.block_kv /= 2;
    config.warps /= 2;
  }
  if (!fits()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("no backward config of head dim {} fits {}: {}", problem.head_dim, device.name,
                            backward_sm80_infeasibility(problem, config, device).front()));
  }
  return config;
}

void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan) {
  Launches launches(problem, config, device, templates, target, plan);
  launches.add_delta();
  launches.add_dkdv();
  launches.add_dq();
  plan->workspace_row_bytes = sizeof(float);  // delta
  plan->ordered_outputs = {Operand::d_q, Operand::d_k, Operand::d_v};
}

}  // namespace attune
