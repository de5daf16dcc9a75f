#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// The steps by which FlashAttention is derived. Each is a plan for any forward problem, on mma.sync:
///   standard  S = Q K^T into device memory; softmax of its rows in three passes (maximum, sum, P); O = P V
///   online    the same with maximum and sum in one pass (Milakov, Gimelshein 2018, arXiv 1805.02867, Algorithm 3)
///   fa1       no S: key blocks outside, query tiles inside; O, l and m in device memory, normalized at each visit
///             (Dao et al. 2022, arXiv 2205.14135, Algorithm 1); one CTA per head, as there
///   fa2       query tiles outside, key blocks inside: O, l and m in registers, normalized once (Dao 2023, arXiv
///             2307.08691, Algorithm 1): this library's forward of family sm80 with its default config, but for parts
///             of the keys
enum class AttentionAlgorithm { standard, online, fa1, fa2 };
inline constexpr AttentionAlgorithm kAttentionAlgorithms[] = {AttentionAlgorithm::standard, AttentionAlgorithm::online,
                                                              AttentionAlgorithm::fa1, AttentionAlgorithm::fa2};

std::string_view to_string(AttentionAlgorithm algorithm);  ///< "standard", "online", "fa1", "fa2"
/// The inverse. Throws Error(invalid_argument) that lists them.
AttentionAlgorithm parse_algorithm(std::string_view text);

/// The plan of an algorithm; otherwise as generate() of a config. KernelPlan::config holds the tiles (of fa2: the whole
/// config). Its workspace grows with the problem: 4 Hq B Sq Skv bytes for S of standard and online, 4 Hq B Sq (D + 2)
/// of fa1. Throws Error(invalid_argument) for an invalid or a backward problem, Error(unsupported) for a device older
/// than 8.0 or with too little shared memory.
KernelPlan generate(const AttentionProblem& problem, AttentionAlgorithm algorithm, const DeviceSpec& device,
                    const TemplateSet& templates = TemplateSet::embedded(), KernelTarget target = KernelTarget::cuda);

/// Bytes that threads ask device memory for, before any cache: what each load and store of an existing element moves,
/// counted once for each thread that does it.
struct MemoryTraffic {
  double read_bytes = 0;
  double written_bytes = 0;

  friend bool operator==(const MemoryTraffic&, const MemoryTraffic&) = default;
};

/// Counts the memory traffic of each launch of an algorithm's plan, by formula, for a call of `problem` that asks for
/// LSE. With pairs = attended (query, key) pairs, R = B Hq Sq, E = 2 D bytes of a row, and keys(q, kv) = the keys in
/// the kv-blocks that tiles of q queries attend to, summed over tiles and heads:
///   scores   reads R E + keys(q, kv) E      writes 4 pairs
///   softmax  reads 12 pairs (online: 8)     writes 4 pairs + 4 R
///   values   reads 4 pairs + keys(q, kv) E  writes R E
///   fa1      reads B Hq 2 Skv' E + rows E + (rows - R)(4 D + 8)    writes (rows - R)(4 D + 8) + R E + 4 R
///            rows = the queries of a tile times its visits (one for each key block that it attends to, one at least),
///            summed over tiles and heads; Skv' = the keys in the visited blocks
///   fa2      reads R E + 2 keys(q, kv) E    writes R E + 4 R
std::vector<MemoryTraffic> count_traffic(const KernelPlan& plan, AttentionAlgorithm algorithm,
                                         const AttentionProblem& problem);
/// The sum over all launches.
MemoryTraffic total_traffic(const std::vector<MemoryTraffic>& launches);

}  // namespace attune
