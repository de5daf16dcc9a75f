#include <fmt/format.h>

#include "generator/device/register_limit.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm90/family.h"
#include "generator/families/backward_sm90/fused_dbias.h"
#include "generator/families/backward_sm90/shape.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/pair_stages.h"
#include "generator/families/shared/visible_blocks.h"
#include "generator/families/shared/wgmma.h"

namespace attune {
namespace {

// Where the softmax warpgroups compute dQ.
void check_dq_by_softmax(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  constexpr int kRowsOfFragment = 16, kLeastHeadDim = 2 * kRowsOfFragment;
  if (config.block_q > kMostBlockQ)
    reasons->push_back(fmt::format("q{} dq-by=softmax: at most {} queries", config.block_q, kMostBlockQ));
  // Narrower heads would have a product read beyond K and V, which follow each other.
  if (problem.head_dim % kRowsOfFragment != 0 || problem.head_dim < kLeastHeadDim) {
    reasons->push_back(
        fmt::format("dq-by=softmax: dQ transposed has fragments of 16 of the head dim; {} is no multiple of 16 from {} "
                    "on; leave the word out",
                    problem.head_dim, kLeastHeadDim));
  } else if (dq_shares(problem, config).queries == 0) {
    reasons->push_back(fmt::format(
        "q{} kv{} dq-by=softmax: {} softmax warpgroups must share {} tiles of 64 of the head dim evenly, "
        "with a multiple of 8 queries each; take more keys, or another number of queries",
        config.block_q, config.block_kv, config.block_kv / kWarpgroupRows, dq_shares(problem, config).row_tiles));
  }
  if (config.dq == DqAccumulation::ordered)
    reasons->push_back(
        "dq-by=softmax dq=ordered: the warpgroups of P and dS would wait for tickets, and with them all products; "
        "leave dq-by out");
  if (config.overlap == Overlap::none)
    reasons->push_back(
        "dq-by=softmax overlap=none: dQ of a block is computed beside the next one's products; take overlap=within or "
        "overlap=queued");
  if (config.ds_stages < 2)
    reasons->push_back(fmt::format(
        "dq-by=softmax dsst{}: dS of a block is stored before dQ of the one before is computed; take dsst2 or more",
        config.ds_stages));
  const auto refuse = [&](bool has, std::string_view word, std::string_view why) {
    if (has) reasons->push_back(fmt::format("dq-by=softmax {}: {}; leave one of the words out", word, why));
  };
  refuse(config.split_dkdv, "split-dkdv", "a warpgroup has either dV or dK, and dQ with neither");
  refuse(config.cluster > 1, "cluster", "a CTA computes dQ of its own keys");
  refuse(config.fused_convert, "fused-convert", "the warpgroup that would convert does not know what has been added");
  refuse(config.polled_loads, "polled-loads", "the warpgroup that loads does nothing else");
  refuse(config.dq_columns != kWarpgroupRows, "dqcols", "products have 64 of the head dim");
  refuse(config.dq_registers != 0, "dqreg", "the warpgroup that loads keeps the fewest registers");
}

// What counts the blocks of a tile, or walks through those of several heads.
void check_walk_of_visible_queries(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (!config.visible_blocks) return;
  refuse_beside_visible_blocks(config.cluster > 1, "cluster: its CTAs walk in step through the blocks of both tiles",
                               reasons);
  refuse_beside_visible_blocks(config.dq == DqAccumulation::ordered,
                               "dq=ordered: each tile waits for the adds of the one before it", reasons);
  refuse_beside_visible_blocks(config.tile_scheduler != TileScheduler::single,
                               "tiles that CTAs take one after the other; take "
                               "scheduler=single",
                               reasons);
  refuse_beside_visible_blocks(dimensions_of(problem.attention_mask).heads && !config.kv_grad_per_query_head,
                               "a mask of each query head, where a tile walks through the heads that share its keys",
                               reasons);
}

void check_choices(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.dq_by == DqWarpgroups::softmax) {
    check_dq_by_softmax(problem, config, reasons);
  } else {
    if (config.block_q % kWarpgroupRows != 0 || config.block_q > kMostBlockQ)
      reasons->push_back(fmt::format("q{}: dQ is computed 64 queries at a time; q must be 64 or 128", config.block_q));
    const auto refuse = [&](bool has, std::string_view word, std::string_view why) {
      if (config.dq_adds == DqAdds::bulk && has)
        reasons->push_back(fmt::format("dq-adds=bulk {}: {}; leave one of the words out", word, why));
    };
    refuse(config.dq == DqAccumulation::ordered, "dq=ordered",
           "a ticket could be passed on only when adds that run on by themselves have arrived");
    refuse(config.fused_convert, "fused-convert",
           "the warpgroup that converts would have to wait for adds that run on by themselves");
  }
  if (problem.packed && config.fused_convert) {
    reasons->push_back(
        "fused-convert: a head's last tile would convert the sums of all packed sequences; leave the word out");
  }
  check_clusters(problem, config, reasons);
  if (config.cluster > 1) {
    const DqProducts dq = dq_products(problem, config);
    if (dq.count % config.cluster != 0) {
      reasons->push_back(
          fmt::format("cluster{}: each CTA computes as many columns of dQ, and head dim {} takes {} products of {}; "
                      "leave the word out",
                      config.cluster, problem.head_dim, dq.count, dq.columns));
    }
    if (config.dq == DqAccumulation::ordered || adds_key_sums(config))
      reasons->push_back(
          fmt::format("cluster{}: its CTAs take no tickets and add to no sums of dK and dV; take dq=atomic, and "
                      "leave kv-grad-per-query-head and query-parts out",
                      config.cluster));
    if (config.ctas_per_sm > 1)
      reasons->push_back(
          fmt::format("cluster{} cta{}: leave one of the words out", config.cluster, config.ctas_per_sm));
  }
  if (config.split_dkdv && config.overlap == Overlap::queued) {
    reasons->push_back(
        "split-dkdv overlap=queued: each warpgroup has two products, which wait for each other; take overlap=within");
  }
  if (config.split_dkdv && config.warpgroup_order != WarpgroupOrder::free)
    reasons->push_back(
        fmt::format("split-dkdv {}: warpgroups with different products take no order; leave the word out",
                    to_string(config.warpgroup_order)));
  if (config.p_in_ds && !config.split_dkdv)
    reasons->push_back("p-in-ds: P stays in registers without split-dkdv; leave one of the words out, or take both");
  if (config.dk_first && (!config.split_dkdv || config.overlap != Overlap::none))
    reasons->push_back(
        "dk-first: dK's product waits for the hand-over of dS with split-dkdv overlap=none alone; leave the word out");
  if (config.block_kv % kWarpgroupRows != 0 || config.block_kv > kMostBlockKv) {
    reasons->push_back(
        fmt::format("kv{}: each softmax warpgroup owns 64 keys, and there are 1 to {}: kv must be a multiple of 64 up "
                    "to {}",
                    config.block_kv, kMostBlockKv / kWarpgroupRows, kMostBlockKv));
  }
  if (config.dq == DqAccumulation::separate_kernel)
    reasons->push_back("dq=separate-kernel: family sm90 adds to dQ; take dq=atomic or dq=ordered");
  if (problem.has_fixed_order() && config.dq == DqAccumulation::atomic) {
    reasons->push_back("dq=atomic deterministic: adds as they come give other bits at each run; take dq=ordered");
  }
  if (config.kv_grad_per_query_head && problem.heads_q == problem.heads_kv)
    reasons->push_back("kv-grad-per-query-head: needs grouped heads (heads_q > heads_kv)");
  // Where fewer CTAs run than were counted on, as in a part of the card, one would wait for another that cannot start.
  const bool persistent = config.tile_scheduler != TileScheduler::single;
  if (persistent && takes_tickets(config)) {
    reasons->push_back(
        fmt::format("scheduler={} dq=ordered: a tile waits for earlier ones, which must have been started; take "
                    "scheduler=single",
                    to_string(config.tile_scheduler)));
  }
  if (persistent && config.cluster > 1)
    reasons->push_back(
        fmt::format("scheduler={} cluster{}: a pair of CTAs takes one pair of tiles; leave one of the words out",
                    to_string(config.tile_scheduler), config.cluster));
  if (config.overlap == Overlap::across)
    reasons->push_back(
        "overlap=across: products of a tile of keys do not run beside the next one's; take overlap=within or "
        "overlap=queued");
  if (config.warpgroup_order == WarpgroupOrder::ping_pong)
    reasons->push_back("pingpong: family sm90 has no such backward; take 'ordered', or leave the word out");
  if (config.warpgroup_order != WarpgroupOrder::free && config.block_kv == kWarpgroupRows)
    reasons->push_back(
        fmt::format("{}: needs at least two softmax warpgroups (kv128 or more)", to_string(config.warpgroup_order)));
  check_key_tile_order(config, reasons);
  if (config.ticket_blocks > 1 && config.dq != DqAccumulation::ordered)
    reasons->push_back(
        fmt::format("ticket{} dq={}: only adds in a fixed order take tickets; take dq=ordered, or leave the word out",
                    config.ticket_blocks, to_string(config.dq)));
  if (config.ticket_blocks > 1 && config.query_parts > 1) {
    reasons->push_back(
        fmt::format("ticket{} query-parts{}: a part may begin or end between blocks that share a ticket; leave one of "
                    "the words out",
                    config.ticket_blocks, config.query_parts));
  }
  check_pair_stages(problem, config, reasons);
  check_copied_pairs(problem, config, reasons);
  check_visible_blocks(problem, config, reasons);
  check_walk_of_visible_queries(problem, config, reasons);
  check_fused_dbias(problem, config, reasons);
  if (config.pair_stages != 0 && config.pair_stages != config.stages) {
    reasons->push_back(fmt::format("pst{} st{}: tiles of tensors of pairs come with those of Q; take pst{}",
                                   config.pair_stages, config.stages, config.stages));
  }
  constexpr int kQueriesOfOne = 16;
  if (const int most = (config.split_dkdv ? 1 : 2) * config.block_q / kQueriesOfOne; config.early_statistics > most) {
    reasons->push_back(fmt::format("early{}: of q{} {} {} times 16 queries; take at most early{}",
                                   config.early_statistics, config.block_q,
                                   config.split_dkdv ? "delta is" : "LSE and delta are", most, most));
  }
  if (config.do_stages != 0 && config.do_stages == config.stages) {
    reasons->push_back(
        fmt::format("dost{}: as many as st{} says of Q already; leave the word out", config.do_stages, config.stages));
  }
  if (config.stages == 1 && config.overlap != Overlap::none) {
    reasons->push_back(fmt::format(
        "st1 overlap={}: a block's Q is read by dK while the next one's S is computed; take st2 or more, or "
        "overlap=none",
        to_string(config.overlap)));
  }
}

// The largest number of columns that names the same products.
void check_dq_columns(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  KernelConfig fewer = config;
  fewer.dq_columns -= kWarpgroupRows;
  if (fewer.dq_columns > 0 && dq_products(problem, fewer).count == 1) {
    reasons->push_back(fmt::format("dqcols{}: one product has all {} columns with dqcols{} too; take that",
                                   config.dq_columns, problem.head_dim, fewer.dq_columns));
  }
}

void check_memory(const BackwardSm90Shape& shape, const KernelConfig& config, const DeviceSpec& device,
                  Reasons* reasons) {
  const std::size_t bytes = shape.shared.bytes();
  const auto of_sm =
      static_cast<std::size_t>(config.ctas_per_sm) * (bytes + static_cast<std::size_t>(device.shared_bytes_reserved));
  if (bytes > static_cast<std::size_t>(device.shared_bytes_per_block) ||
      of_sm > static_cast<std::size_t>(device.shared_bytes_per_sm)) {
    const std::string staged =
        config.dq_adds == DqAdds::bulk ? " with the part of dQ that dq-adds=bulk keeps there" : "";
    reasons->push_back(fmt::format(
        "shared memory: K and V, {} blocks of Q, {} of dO and {} of dS{} take {} bytes of each of {} CTAs; a CTA of {} "
        "may have {}, an SM {}",
        config.stages, shape.do_stages, config.ds_stages, staged, bytes, config.ctas_per_sm, device.name,
        device.shared_bytes_per_block, device.shared_bytes_per_sm));
  }
}

void check_registers(const AttentionProblem& problem, const BackwardSm90Shape& shape, const KernelConfig& config,
                     Reasons* reasons) {
  // ptxas compiles for the registers at launch, and takes no product whose result and operands alone exceed them.
  constexpr int kOperandRegisters = 30;
  if (const int product = shape.product_columns / 2 + kOperandRegisters; product > shape.launch_registers) {
    reasons->push_back(
        fmt::format("registers: a product of {} columns takes {} registers of a thread and {} CTAs of {} threads leave "
                    "it {} at launch; take fewer CTAs, keys or queries",
                    shape.product_columns, product, config.ctas_per_sm, shape.threads, shape.launch_registers));
  }
  // Accumulators begin at register 24: where others have fewer than these, ptxas serializes the products. What changes
  // scores and takes gradients back takes some more.
  const int others = has_slopes(problem) ? 32 : 24;
  const auto check = [&](const char* what, int accumulators, int limit) {
    if (accumulators + others <= limit) return;
    reasons->push_back(
        fmt::format("registers: {} take {} registers of a thread beside {} others; it may have {} with {} CTAs of {} "
                    "threads on an SM",
                    what, accumulators, others, limit, config.ctas_per_sm, shape.threads));
  };
  const bool dq_by_softmax = config.dq_by == DqWarpgroups::softmax;
  check(dq_by_softmax       ? "dK, dV, S and dP, or P, dS and dQ"
        : config.split_dkdv ? "dK or dV, S, P and dS"
                            : "dK, dV, S, P and dS",
        shape.softmax_accumulators, shape.softmax_registers > 0 ? shape.softmax_registers : shape.launch_registers);
  if (!dq_by_softmax)
    check("the columns of dQ", shape.dq_accumulators,
          shape.dq_registers > 0 ? shape.dq_registers : shape.launch_registers);
}

// Another number of registers must give another kernel.
void check_dq_registers(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                        Reasons* reasons) {
  if (config.dq_registers == 0) return;
  KernelConfig without = config;
  without.dq_registers = 0;
  const int registers = backward_sm90_shape(problem, without, device).dq_registers;
  if (registers == 0) {
    reasons->push_back(
        fmt::format("dqreg{}: the one softmax warpgroup of kv{} has all that a thread can have; leave the "
                    "word out",
                    config.dq_registers, config.block_kv));
  } else if (registers == config.dq_registers) {
    reasons->push_back(fmt::format("dqreg{}: as many as without the word; leave it out", config.dq_registers));
  }
}

}  // namespace

void check_backward_sm90(const Question& question, const KernelConfig& config, Reasons* reasons) {
  const auto& [problem, device] = question;
  check_choices(problem, config, reasons);
  check_query_parts(config, reasons);
  if (!reasons->empty()) return;
  check_dq_columns(problem, config, reasons);
  check_dq_registers(problem, config, device, reasons);
  const BackwardSm90Shape shape = backward_sm90_shape(problem, config, device);
  if (!threads_fit(shape.threads, config, device, reasons)) return;
  check_memory(shape, config, device, reasons);
  check_registers(problem, shape, config, reasons);
}

}  // namespace attune
