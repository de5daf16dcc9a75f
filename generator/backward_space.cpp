#include "generator/backward_space.h"

#include <algorithm>
#include <initializer_list>

#include "generator/backward_sm80_plan.h"
#include "generator/register_limit.h"

namespace attune {
namespace {

// Queries of a block: few leave registers to dK and dV, which stand beside S and dP of a block; many mean fewer
// barriers a product, less waste on a copy's latency, and in the kernel of dQ more warps that share K and V.
constexpr int kBlockQ[] = {16, 32, 48, 64, 80, 96, 128};
// Warps of the kernel of dK and dV, and keys of each: more keys of a CTA read Q and dO less often from L2; 32 keys a
// warp read them less often from shared memory too, but double the accumulators. One warp is for very short keys.
constexpr int kWarps[] = {1, 2, 4, 8};
constexpr int kKeysPerWarp[] = {16, 32};
// Pairs of tiles in flight: with one, a copy's latency is hidden by other CTAs only, but more of them fit.
constexpr int kStages[] = {1, 2, 3};
// CTAs that must fit on an SM: ptxas takes all the registers that it may have, which leaves room for one CTA.
constexpr int kMaxCtasPerSm = 4;

// Numbers of CTAs that limit the registers of either kernel, each differently: the others would give the same code.
std::vector<int> ctas_choices(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  const auto limits = [&](int ctas) {
    return std::pair(register_limit(shape.dkdv_threads, ctas, device), register_limit(shape.dq_threads, ctas, device));
  };
  std::vector<int> choices = {1};
  for (int ctas = 2; ctas <= kMaxCtasPerSm; ++ctas) {
    if (limits(ctas) != limits(choices.back())) choices.push_back(ctas);
  }
  return choices;
}

}  // namespace

std::vector<KernelConfig> backward_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config = default_fields(KernelFamily::sm80);
  for (const int block_q : kBlockQ) {
    config.block_q = block_q;
    for (const int warps : kWarps) {
      config.warps = warps;
      for (const int keys : kKeysPerWarp) {
        config.block_kv = keys * warps;
        for (const int stages : kStages) {
          config.stages = stages;
          for (const int ctas : ctas_choices(problem, config, device)) {
            config.ctas_per_sm = ctas;
            configs.push_back(config);
          }
        }
      }
    }
  }
  return configs;
}

bool is_of_reduced_backward_space(const KernelConfig& config) {
  const auto in = [](int value, std::initializer_list<int> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  return in(config.block_q, {16, 32, 64, 96, 128}) && config.warps >= 2 && config.stages <= 2;
}

}  // namespace attune
