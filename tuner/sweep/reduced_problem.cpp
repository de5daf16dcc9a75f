#include "tuner/sweep/reduced_problem.h"

#include <algorithm>
#include <cstdint>

#include "generator/plan/key_split.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr double kEmulatorFlopsPerSecond = 0.3e9;
constexpr double kEmulatorSeconds = 1;  // of a check; larger problems are reduced
constexpr std::int64_t kReducedQueryTiles = 2, kReducedKeyTiles = 3, kReducedKeyParts = 3;

}  // namespace

AttentionProblem reduced_problem(const AttentionProblem& problem, const KernelConfig& config) {
  constexpr double kLimit = kEmulatorFlopsPerSecond * kEmulatorSeconds;
  if (count_flops(problem) <= kLimit) return problem;
  // A few whole tiles and the same tail.
  const auto cut = [](std::int64_t length, std::int64_t block, std::int64_t tiles) {
    return std::min(length, tiles * block + length % block);
  };
  // Keys enough for several parts where a config splits them.
  const std::int64_t key_tiles =
      config.key_parts == 1 ? kReducedKeyTiles
                            : ceil_div(kReducedKeyParts * least_keys_of_part(config.block_kv), config.block_kv);
  AttentionProblem reduced = with_lengths(problem, cut(problem.seq_q, config.block_q, kReducedQueryTiles),
                                          cut(problem.seq_kv, config.block_kv, key_tiles));
  // Two of everything that repeats, then one, until it is small enough.
  std::int64_t group = std::min<std::int64_t>(problem.heads_q / problem.heads_kv, 2);
  reduced.batch = std::min<std::int64_t>(problem.batch, 2);
  reduced.heads_kv = std::min<std::int64_t>(problem.heads_kv, 2);
  reduced.heads_q = reduced.heads_kv * group;
  for (std::int64_t* repeats : {&reduced.batch, &reduced.heads_kv, &group}) {
    if (count_flops(reduced) <= kLimit) break;
    *repeats = 1;
    reduced.heads_q = reduced.heads_kv * group;
  }
  return reduced;
}

}  // namespace attune
