#include <fmt/format.h>

#include "generator/device/register_limit.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/family.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/families/invariance.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"

namespace attune {
namespace {

constexpr int kMaxConsumers = 3;  // warpgroups of a kernel that compute

void check_warpgroups(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.block_q < 64 || config.block_q > 64 * kMaxConsumers || config.block_q % 64 != 0) {
    reasons->push_back(
        fmt::format("q{}: each consumer warpgroup owns 64 queries, and there are 1 to {}: q must be a "
                    "multiple of 64 up to {}",
                    config.block_q, kMaxConsumers, 64 * kMaxConsumers));
  }
  if (config.overlap == Overlap::queued) {
    reasons->push_back(
        "overlap=queued: a forward has no two products that could follow each other without a pause; take within");
  }
  if (config.q_stages > 1 && config.tile_scheduler == TileScheduler::single)
    reasons->push_back(fmt::format("qst{}: a CTA of a single tile has no use for a second one of Q", config.q_stages));
  if (config.overlap == Overlap::across && config.tile_scheduler == TileScheduler::single)
    reasons->push_back("overlap=across: a CTA of a single tile has no next one");
  if (config.warpgroup_order != WarpgroupOrder::free && config.block_q == 64)
    reasons->push_back(
        fmt::format("{}: needs at least two consumer warpgroups (q128 or more)", to_string(config.warpgroup_order)));
  if (config.v_stages != 0 && config.v_stages == config.stages)
    reasons->push_back(
        fmt::format("vst{}: as many as st{} says of K already; leave the word out", config.v_stages, config.stages));
  if (config.warpgroup_order == WarpgroupOrder::ping_pong && config.overlap != Overlap::none) {
    reasons->push_back(
        fmt::format("pingpong overlap={}: a warpgroup's products run beside the softmax of others, not "
                    "its own; take 'ordered', or no overlap",
                    to_string(config.overlap)));
  }
}

// What the consumers have beside a producer of so many registers: other numbers of them must give another kernel.
void check_producer_registers(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                              std::vector<std::string>* reasons) {
  if (config.producer_registers == 0) return;
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

void check_key_walk(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.ascending_keys && config.overlap == Overlap::across) {
    reasons->push_back(
        "ascending-keys overlap=across: a tile's first block is joined to the last product of the tile before, which "
        "other warpgroups may still pass over; take overlap=within");
  }
}

// What walks through a tile's blocks otherwise than one after the other, from the last one down.
void check_walk_of_visible(const AttentionProblem& problem, const KernelConfig& config,
                           std::vector<std::string>* reasons) {
  if (!config.visible_blocks) return;
  refuse_beside_visible_blocks(config.overlap == Overlap::across, "overlap=across; take overlap=within", reasons);
  refuse_beside_visible_blocks(config.ascending_keys, "ascending-keys", reasons);
  refuse_beside_visible_blocks(config.cluster > 1, "cluster: its CTAs walk in step through the blocks of several tiles",
                               reasons);
  refuse_beside_visible_blocks(config.key_parts != 1, "parts of the keys", reasons);
  refuse_beside_visible_blocks(
      config.pack_gqa, "pack-gqa: a tile would have rows of several heads, which may have masks of their own", reasons);
  refuse_beside_visible_blocks(config.promotion_blocks != 0, "promote", reasons);
  refuse_beside_visible_blocks(problem.invariant, "an invariant problem, whose parts hold a fixed number of blocks",
                               reasons);
}

void check_promotion(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.promotion_blocks == 0 && !adds_parts_of_keys(problem, config)) return;
  const std::string what =
      config.promotion_blocks == 0 ? "invariant" : fmt::format("promote{}", config.promotion_blocks);
  if (config.tile_scheduler == TileScheduler::single) {
    reasons->push_back(
        fmt::format("{}: the workspace has room for the sums of CTAs that stay; take "
                    "scheduler=static-persistent or scheduler=dynamic-persistent",
                    what));
  }
  if (config.overlap == Overlap::across) {
    reasons->push_back(
        fmt::format("{} overlap=across: a tile whose last product is under way has sums in its registers; take "
                    "overlap=within",
                    what));
  }
  if (const int rows = config.block_q * config.ctas_per_sm; rows > kPromotedRowsPerSm) {
    reasons->push_back(
        fmt::format("{}: the workspace has room for the sums of {} rows of an SM, not of {}; take "
                    "fewer CTAs per SM",
                    what, kPromotedRowsPerSm, rows));
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

}  // namespace

void check_forward_sm90(const Question& question, const KernelConfig& config, Reasons* reasons) {
  const auto& [problem, device] = question;
  check_warpgroups(config, reasons);
  check_pack_gqa(problem, config, reasons);
  check_forward_tile(config, reasons);
  if (!reasons->empty()) return;

  const ForwardSm90Shape shape = forward_sm90_shape(problem, config, device);
  check_sections(config, reasons);
  check_even_tiles(problem, config, reasons);
  check_clusters(problem, config, reasons);
  check_key_parts(problem, config, device, reasons);
  check_pair_stages(problem, config, reasons);
  check_copied_pairs(problem, config, reasons);
  check_key_walk(config, reasons);
  check_visible_blocks(problem, config, reasons);
  check_walk_of_visible(problem, config, reasons);
  check_promotion(problem, config, reasons);
  check_producer_registers(problem, config, device, reasons);
  check_shared_memory(static_cast<std::size_t>(config.q_stages) * shape.q_tile_bytes, shape.p_bytes,
                      static_cast<std::size_t>(config.stages + shape.v_stages) * shape.kv_tile_bytes,
                      shape.shared.bytes(), config, device, reasons);
  check_registers(shape, config, device, reasons);
}

}  // namespace attune
