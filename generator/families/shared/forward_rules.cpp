#include "generator/families/shared/forward_rules.h"

#include <fmt/format.h>

#include <utility>

#include "generator/families/family_word.h"
#include "generator/families/invariance.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/wgmma.h"
#include "generator/problem/dispatch_class.h"
#include "generator/rounding.h"

namespace attune {
namespace {
constexpr int kMaxBlockKv = 256;
constexpr std::int64_t kShortSequence = 1024;  // of queries, whose tiles and launches are small
}  // namespace

void check_forward_tile(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.block_kv > kMaxBlockKv)
    reasons->push_back(fmt::format("kv{}: must be a multiple of 16 from 16 to {}", config.block_kv, kMaxBlockKv));
  if (config.tile_order == TileOrder::l2_sections)
    reasons->push_back(
        "order=l2-sections: of tiles of queries the last are the longest; take order=l2-sections-reversed");
}

void check_sections(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.l2_parts != KernelConfig().l2_parts && config.tile_order != TileOrder::l2_sections_reversed) {
    reasons->push_back(
        fmt::format("l2parts{}: only order=l2-sections-reversed has sections; leave the word out", config.l2_parts));
  }
}

void check_even_tiles(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons) {
  if (!config.even_tiles) return;
  if (problem.has_used_lengths()) {
    reasons->push_back("even-tiles: sequences of used lengths end anywhere; leave the word out");
    return;
  }
  const std::int64_t rows = config.pack_gqa ? problem.seq_q * problem.heads_q / problem.heads_kv : problem.seq_q;
  if (rows % (config.block_q * config.cluster) != 0) {
    reasons->push_back(fmt::format("even-tiles: the query length {}{} is not a multiple of {}q{}", problem.seq_q,
                                   config.pack_gqa ? fmt::format(", {} rows with the packed heads,", rows) : "",
                                   config.cluster > 1 ? fmt::format("{} times ", config.cluster) : "", config.block_q));
  }
  if (problem.seq_kv % config.block_kv != 0) {
    reasons->push_back(
        fmt::format("even-tiles: the key length {} is not a multiple of kv{}", problem.seq_kv, config.block_kv));
  }
}

void check_pack_gqa(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons) {
  if (!config.pack_gqa) return;
  if (problem.dropout != 0) {
    reasons->push_back(
        "pack-gqa: dropout draws for sixteen neighbouring queries of a head together; leave the word out");
    return;
  }
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  if (group == 1) {
    reasons->push_back("pack-gqa: needs grouped heads (heads_q > heads_kv)");
  } else if (config.block_q % group != 0) {
    reasons->push_back(fmt::format("pack-gqa: {} query heads share K and V, and q{} is not a multiple of that", group,
                                   config.block_q));
  }
}

void check_shared_memory(std::size_t q_bytes, std::size_t p_bytes, std::size_t kv_bytes, std::size_t shared_bytes,
                         const KernelConfig& config, const DeviceSpec& device, std::vector<std::string>* reasons) {
  const auto available = static_cast<std::size_t>(device.shared_bytes_per_block);
  if (shared_bytes > available) {
    const std::string stages = config.v_stages == 0
                                   ? fmt::format("{} stages of K and V", config.stages)
                                   : fmt::format("{} stages of K and {} of V", config.stages, config.v_stages);
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

namespace {

// An invariant problem has sums that no config of another has, and the other way about.
KernelConfig with_sums_for(const AttentionProblem& problem, const KernelConfig& given) {
  KernelConfig config = given;
  if (!problem.invariant) {
    if (config.key_parts == kFixedParts) config.key_parts = kFillParts;
    return config;
  }
  config = with_invariant_sums(problem, config);
  if (config.key_parts != 1) config.key_parts = kFixedParts;
  if (config.family == FamilyWord::sm90 && config.key_parts == 1) {  // CTAs that stay add up the parts
    if (config.tile_scheduler == TileScheduler::single) config.tile_scheduler = TileScheduler::static_persistent;
    if (config.overlap == Overlap::across) config.overlap = Overlap::within;
  }
  return config;
}

}  // namespace

Adaptation adapt_forward(const Question& question, const KernelConfig& given) {
  const AttentionProblem& problem = question.problem;
  Adaptation adaptation{with_sums_for(problem, given), {}};
  KernelConfig& config = adaptation.config;
  const auto changed = [&](std::string what) { adaptation.changes.push_back(std::move(what)); };
  if (!(config == given))
    changed(problem.invariant ? "with the sums of invariant problems"
                              : "with parts=fill in place of fixed ones, which only invariant problems have");
  config = promoted_for(problem, config);
  if (!problem.invariant && config.promotion_blocks != given.promotion_blocks) {
    changed(config.promotion_blocks == 0 ? "without promote, which only long rows need"
                                         : "with promote, which long rows need");
  }
  if (const int before = config.rescale_threshold; before > 0) {
    config = with_threshold_for(problem.dtype, config);
    if (config.rescale_threshold != before)
      changed(fmt::format("with rescale{}, as this dtype wants it", config.rescale_threshold));
  }
  Reasons reasons;
  check_even_tiles(problem, config, &reasons);
  if (!reasons.empty()) {
    config.even_tiles = false;
    changed("without even-tiles, which do not fit");
  }
  if (leave_clusters(problem, &config)) changed(kWithoutClusters);
  return adaptation;
}

int heads_of_tile(const AttentionProblem& problem, const KernelConfig& config) {
  return config.pack_gqa ? static_cast<int>(problem.heads_q / problem.heads_kv) : 1;
}

bool pack_gqa_may_win(const AttentionProblem& problem, int block_q) {
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  return group > 1 && block_q % group == 0 && problem.seq_q <= kShortSequence;
}

std::int64_t query_tile_count(const AttentionProblem& problem, int block_q, std::int64_t group) {
  return ceil_div(problem.seq_q * group, block_q) * problem.batch * problem.heads_q / group;
}

// A plan for whole tiles serves a whole dispatch class, so its tiles must divide the lengths of all its members.
std::vector<bool> whole_tile_choices(const AttentionProblem& problem, int block_q, int block_kv) {
  const bool lengths = problem.seq_q % kWholeLength == 0 && problem.seq_kv % kWholeLength == 0;
  if (lengths && !problem.has_used_lengths() && kWholeLength % block_q == 0 && kWholeLength % block_kv == 0)
    return {false, true};
  return {false};
}

}  // namespace attune
