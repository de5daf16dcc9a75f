#include "generator/families/shared/step_count.h"
#include "generator/rounding.h"

#include <algorithm>

namespace attune {
namespace {
constexpr int kSampledTiles = 64;
}  // namespace

StepCount count_steps(const AttentionProblem& problem, const KernelConfig& config) {
  const std::int64_t tiles = ceil_div(problem.seq_q, config.block_q);
  const std::int64_t samples = std::min<std::int64_t>(tiles, kSampledTiles);
  const auto keys_until = [&](std::int64_t row) {
    if (problem.mask == MaskKind::none) return problem.seq_kv;
    return std::clamp<std::int64_t>(row + problem.mask_offset + 1, 0, problem.seq_kv);
  };
  StepCount steps;
  steps.shortest = static_cast<double>(problem.seq_kv);
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t tile = samples == 1 ? 0 : i * (tiles - 1) / (samples - 1);
    const std::int64_t first = tile * config.block_q;
    const std::int64_t last = std::min(first + config.block_q, problem.seq_q) - 1;
    const auto all = static_cast<double>(ceil_div(keys_until(last), config.block_kv));
    const auto unmasked = static_cast<double>(keys_until(first) / config.block_kv);
    steps.mean += all / static_cast<double>(samples);
    steps.masked += (all - unmasked) / static_cast<double>(samples);
    steps.longest = std::max(steps.longest, all);
    steps.shortest = std::min(steps.shortest, all);
  }
  return steps;
}

}  // namespace attune
