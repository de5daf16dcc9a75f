#include <fmt/format.h>

#include <algorithm>

#include "generator/device/register_limit.h"
#include "generator/families/backward_sm80/feasibility.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/generate.h"

namespace attune {
namespace {
constexpr int kMaxWarps = 16;
constexpr int kMaxStages = 4;
constexpr int kMaxCtasOfAnySm = 32;
constexpr int kMaxConsumers = 3;  // warpgroups of an sm90 kernel that compute
constexpr int kMaxQStages = 2;
constexpr int kMaxCluster = 2;
constexpr int kMinProducerRegisters = 24, kMaxProducerRegisters = 56, kRegisterStep = 8;  // setmaxnreg takes multiples
constexpr int kMaxEmulatedExponentials = 8;
constexpr int kMaxL2Parts = 16;
constexpr int kMaxRescaleThreshold = 32;  // P may reach 2^threshold, and sums of it must stay within fp32

// Fields that make no kernel, whatever the problem and the device. The other checks compute with them.
void check_tile(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.block_kv < 16 || config.block_kv > 256 || config.block_kv % 16 != 0)
    reasons->push_back(fmt::format("kv{}: must be a multiple of 16 from 16 to 256", config.block_kv));
  if (config.stages < 1 || config.stages > kMaxStages)
    reasons->push_back(fmt::format("st{}: must be 1 to {}", config.stages, kMaxStages));
  if (config.rescale_threshold < 0 || config.rescale_threshold > kMaxRescaleThreshold)
    reasons->push_back(fmt::format("rescale{}: must be 0 to {}", config.rescale_threshold, kMaxRescaleThreshold));
  if (config.ctas_per_sm < 1 || config.ctas_per_sm > kMaxCtasOfAnySm)
    reasons->push_back(fmt::format("cta{}: must be 1 to {}", config.ctas_per_sm, kMaxCtasOfAnySm));
}

void check_warps(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.warps < 1 || config.warps > kMaxWarps) {
    reasons->push_back(fmt::format("w{}: a CTA has 1 to {} warps", config.warps, kMaxWarps));
    return;
  }
  const int rows = config.block_q / config.warps;
  if (config.block_q % config.warps != 0 || (rows != 16 && rows != 32 && rows != 48 && rows != 64)) {
    reasons->push_back(fmt::format("q{} w{}: each warp owns 16, 32, 48 or 64 queries, so q must be {}, {}, {} or {}",
                                   config.block_q, config.warps, 16 * config.warps, 32 * config.warps,
                                   48 * config.warps, 64 * config.warps));
  }
}

void check_warpgroups(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.block_q < 64 || config.block_q > 64 * kMaxConsumers || config.block_q % 64 != 0) {
    reasons->push_back(
        fmt::format("q{}: each consumer warpgroup owns 64 queries, and there are 1 to {}: q must be a "
                    "multiple of 64 up to {}",
                    config.block_q, kMaxConsumers, 64 * kMaxConsumers));
  }
  if (config.q_stages < 1 || config.q_stages > kMaxQStages)
    reasons->push_back(fmt::format("qst{}: must be 1 to {}", config.q_stages, kMaxQStages));
  if (config.q_stages > 1 && config.persistence == Persistence::none)
    reasons->push_back(fmt::format("qst{}: a CTA of a single tile has no use for a second one of Q", config.q_stages));
  if (config.overlap == Overlap::across && config.persistence == Persistence::none)
    reasons->push_back("overlap=across: a CTA of a single tile has no next one");
  if (config.warpgroup_order != WarpgroupOrder::free && config.block_q == 64)
    reasons->push_back(fmt::format("{}: there is but one consumer warpgroup", to_string(config.warpgroup_order)));
  if (config.v_stages < 0 || config.v_stages > kMaxStages)
    reasons->push_back(fmt::format("vst{}: must be 1 to {}", config.v_stages, kMaxStages));
  if (config.v_stages != 0 && config.v_stages == config.stages)
    reasons->push_back(
        fmt::format("vst{}: as many as st{} says of K already; leave the word out", config.v_stages, config.stages));
  if (config.cluster < 1 || config.cluster > kMaxCluster)
    reasons->push_back(fmt::format("cluster{}: must be 1 or {}", config.cluster, kMaxCluster));
  if (config.warpgroup_order == WarpgroupOrder::ping_pong && config.overlap != Overlap::none) {
    reasons->push_back(
        fmt::format("pingpong overlap={}: a warpgroup's products run beside the softmax of others, not "
                    "its own; take turns, or no overlap",
                    to_string(config.overlap)));
  }
}

// Before forward_sm90_shape, which divides by what is checked here.
void check_packed_heads(const AttentionProblem& problem, const KernelConfig& config,
                        std::vector<std::string>* reasons) {
  if (!config.packed_heads) return;
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  if (group == 1) {
    reasons->push_back("packed: every query head has keys of its own; leave the word out");
  } else if (config.block_q % group != 0) {
    reasons->push_back(
        fmt::format("packed: {} query heads share K and V, and q{} is not a multiple of that", group, config.block_q));
  }
}

// What the consumers have beside a producer of so many registers: other numbers of them must give another kernel.
void check_producer_registers(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                              std::vector<std::string>* reasons) {
  if (config.producer_registers == 0) return;
  if (config.producer_registers < kMinProducerRegisters || config.producer_registers > kMaxProducerRegisters ||
      config.producer_registers % kRegisterStep != 0) {
    reasons->push_back(fmt::format("preg{}: must be a multiple of {} from {} to {}", config.producer_registers,
                                   kRegisterStep, kMinProducerRegisters, kMaxProducerRegisters));
    return;
  }
  KernelConfig without = config;
  without.producer_registers = 0;
  const int registers = forward_sm90_shape(problem, without, device).producer_registers;
  if (registers == 0) {
    reasons->push_back(fmt::format("preg{}: the one consumer of q{} has all that a thread can have; leave the word out",
                                   config.producer_registers, config.block_q));
  } else if (registers == config.producer_registers) {
    reasons->push_back(fmt::format("preg{}: as many as without the word; leave it out", config.producer_registers));
  }
}

void check_sections(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.l2_parts < 1 || config.l2_parts > kMaxL2Parts)
    reasons->push_back(fmt::format("l2parts{}: must be 1 to {}", config.l2_parts, kMaxL2Parts));
  if (config.l2_parts != KernelConfig().l2_parts && config.tile_order != TileOrder::sections_reversed) {
    reasons->push_back(
        fmt::format("l2parts{}: only order=sections-reversed has sections; leave the word out", config.l2_parts));
  }
}

void check_exponentials(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.emulated_exponentials < 0 || config.emulated_exponentials > kMaxEmulatedExponentials) {
    reasons->push_back(
        fmt::format("exp{}: must be 0 to {} of 16: with more, polynomials take longer than what they save",
                    config.emulated_exponentials, kMaxEmulatedExponentials));
  }
}

void check_whole_tiles(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons) {
  if (!config.whole_tiles) return;
  const std::int64_t rows = config.packed_heads ? problem.seq_q * problem.heads_q / problem.heads_kv : problem.seq_q;
  if (rows % (config.block_q * config.cluster) != 0) {
    reasons->push_back(fmt::format("whole: the query length {}{} is not a multiple of {}q{}", problem.seq_q,
                                   config.packed_heads ? fmt::format(", {} rows with the packed heads,", rows) : "",
                                   config.cluster > 1 ? fmt::format("{} times ", config.cluster) : "", config.block_q));
  }
  if (problem.seq_kv % config.block_kv != 0) {
    reasons->push_back(
        fmt::format("whole: the key length {} is not a multiple of kv{}", problem.seq_kv, config.block_kv));
  }
}

// `stages`: of K and V, which take kv_bytes together.
void check_shared_memory(std::size_t q_bytes, std::size_t p_bytes, std::size_t kv_bytes, const std::string& stages,
                         std::size_t shared_bytes, const KernelConfig& config, const DeviceSpec& device,
                         std::vector<std::string>* reasons) {
  const auto available = static_cast<std::size_t>(device.shared_bytes_per_block);
  if (shared_bytes > available) {
    reasons->push_back(fmt::format(
        "shared memory: Q takes {} bytes{} and {} take {}, together {}; a CTA of {} may have {}", q_bytes,
        p_bytes > 0 ? fmt::format(", P {}", p_bytes) : "", stages, kv_bytes, shared_bytes, device.name, available));
    return;
  }
  const std::size_t ctas = static_cast<std::size_t>(config.ctas_per_sm);
  const std::size_t of_each = shared_bytes + static_cast<std::size_t>(device.shared_bytes_reserved);
  if (ctas > 1 && ctas * of_each > static_cast<std::size_t>(device.shared_bytes_per_sm)) {
    reasons->push_back(fmt::format("shared memory: {} CTAs of {} bytes and {} reserved are {}; an SM of {} has {}",
                                   ctas, shared_bytes, device.shared_bytes_reserved, ctas * of_each, device.name,
                                   device.shared_bytes_per_sm));
  }
}

bool threads_fit(int threads, const KernelConfig& config, const DeviceSpec& device, std::vector<std::string>* reasons) {
  if (config.ctas_per_sm <= device.ctas_per_sm && config.ctas_per_sm * threads <= device.threads_per_sm) return true;
  reasons->push_back(fmt::format(
      "cta{}: {} CTAs of {} threads do not fit an SM of {}, which takes {} CTAs and {} threads", config.ctas_per_sm,
      config.ctas_per_sm, threads, device.name, device.ctas_per_sm, device.threads_per_sm));
  return false;
}

void check_registers(const ForwardSm80Shape& shape, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<std::string>* reasons) {
  if (!threads_fit(shape.threads, config, device, reasons)) return;
  const int limit = register_limit(shape.threads, config.ctas_per_sm, device);
  if (shape.accumulator_registers > limit - kWorkingRegisters) {
    reasons->push_back(
        fmt::format("registers: {} rows of O (head dim {}), of S (kv{}){} take {} registers of a thread beside at "
                    "least {} others; it "
                    "may have {} with {} CTAs of {} threads on an SM",
                    shape.rows_per_warp, 8 * shape.chunks, config.block_kv, config.q_in_registers ? " and of Q" : "",
                    shape.accumulator_registers, kWorkingRegisters, limit, config.ctas_per_sm, shape.threads));
  }
}

void check_registers(const ForwardSm90Shape& shape, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<std::string>* reasons) {
  if (!threads_fit(shape.threads, config, device, reasons)) return;
  // ptxas compiles for the registers at launch, and takes no product whose result and operands alone exceed them.
  constexpr int kOperandRegisters = 30;
  const int product = shape.product_columns / 2 + kOperandRegisters;
  if (product > shape.launch_registers) {
    reasons->push_back(
        fmt::format("registers: a product of {} columns takes {} registers of a thread and {} CTAs of {} threads leave "
                    "it {} at launch; "
                    "take fewer CTAs, consumers or keys",
                    shape.product_columns, product, config.ctas_per_sm, shape.threads, shape.launch_registers));
  }
  const int limit = shape.consumer_registers > 0 ? shape.consumer_registers : shape.launch_registers;
  if (shape.accumulator_registers > limit - kWorkingRegisters) {
    reasons->push_back(fmt::format(
        "registers: 64 rows of {} (kv{}){} take {} registers of a thread beside at least {} others; a consumer "
        "may have {} with {} CTAs of {} threads on an SM",
        config.p_in_shared ? "O and S" : "O, S and P", config.block_kv, config.q_in_registers ? " and of Q" : "",
        shape.accumulator_registers, kWorkingRegisters, limit, config.ctas_per_sm, shape.threads));
  }
}

std::vector<std::string> infeasibility_sm80(const AttentionProblem& problem, const KernelConfig& config,
                                            const DeviceSpec& device) {
  std::vector<std::string> reasons;
  if (device.compute_major < 8) {
    reasons.push_back(fmt::format("{} has compute capability {}.{}; family {} needs 8.0 or newer", device.name,
                                  device.compute_major, device.compute_minor, to_string(config.family)));
  }
  check_warps(config, &reasons);
  check_tile(config, &reasons);
  if (!reasons.empty()) return reasons;

  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  check_sections(config, &reasons);
  check_whole_tiles(problem, config, &reasons);
  check_shared_memory(shape.q_bytes, 0, 2 * static_cast<std::size_t>(config.stages) * shape.kv_tile_bytes,
                      fmt::format("{} stages of K and V", config.stages), shape.shared_bytes, config, device, &reasons);
  check_registers(shape, config, device, &reasons);
  return reasons;
}

std::vector<std::string> infeasibility_sm90(const AttentionProblem& problem, const KernelConfig& config,
                                            const DeviceSpec& device) {
  std::vector<std::string> reasons;
  if (device.compute_major != 9 || device.compute_minor != 0) {
    reasons.push_back(fmt::format("{} has compute capability {}.{}; family {} needs 9.0", device.name,
                                  device.compute_major, device.compute_minor, to_string(config.family)));
  }
  if (problem.alignment < 16) {
    reasons.push_back(fmt::format(
        "align{}: TMA copies rows that start at multiples of 16 bytes; family sm80 takes others", problem.alignment));
  }
  if (config.without_maximum && problem.dtype != DataType::bf16)
    reasons.push_back("nomax: P may reach 2^100, which only bf16 holds");
  if (config.without_maximum && config.rescale_threshold != 0)
    reasons.push_back(fmt::format("nomax rescale{}: nothing is compared with a threshold", config.rescale_threshold));
  check_warpgroups(config, &reasons);
  check_exponentials(config, &reasons);
  check_packed_heads(problem, config, &reasons);
  check_tile(config, &reasons);
  if (!reasons.empty()) return reasons;

  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  check_sections(config, &reasons);
  check_whole_tiles(problem, config, &reasons);
  check_producer_registers(problem, config, device, &reasons);
  check_shared_memory(static_cast<std::size_t>(config.q_stages) * shape.q_tile_bytes, shape.p_bytes,
                      static_cast<std::size_t>(config.stages + shape.v_stages) * shape.kv_tile_bytes,
                      config.v_stages == 0 ? fmt::format("{} stages of K and V", config.stages)
                                           : fmt::format("{} stages of K and {} of V", config.stages, config.v_stages),
                      shape.shared_bytes, config, device, &reasons);
  check_registers(shape, config, device, &reasons);
  return reasons;
}
}  // namespace

std::vector<std::string> infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                       const DeviceSpec& device) {
  if (problem.pass == Pass::backward) {
    if (config.family != KernelFamily::sm80)
      return {fmt::format("backward kernels are of family sm80 only, not {}", to_string(config.family))};
    return backward_sm80_infeasibility(problem, config, device);
  }
  std::vector<std::string> reasons;
  if (config.dq != QueryGradient::own)
    reasons.push_back(fmt::format("dq={}: a forward pass has no dQ; leave the word out", to_string(config.dq)));
  if (config.split != 1)
    reasons.push_back(fmt::format("split{}: only backward's warps share keys; leave the word out", config.split));
  if (config.heads_apart) reasons.push_back("apart: only backward's tiles are of keys; leave the word out");
  if (config.dq_first) reasons.push_back("dq-first: a forward pass has no dQ; leave the word out");
  if (config.tile_order == TileOrder::sections)
    reasons.push_back("order=sections: of tiles of queries the last are the longest; take order=sections-reversed");
  if (!reasons.empty()) return reasons;
  return config.family == KernelFamily::sm80 ? infeasibility_sm80(problem, config, device)
                                             : infeasibility_sm90(problem, config, device);
}

}  // namespace attune
