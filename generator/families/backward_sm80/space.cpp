#include "generator/families/backward_sm80/family.h"

#include <utility>

#include "generator/device/register_limit.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_sm80/shape.h"
#include "generator/families/family_word.h"

namespace attune {
namespace {

// Queries of a block: few leave registers to dK and dV, which stand beside S and dP of a block; many mean fewer
// barriers a product and less exposed latency of copies, and in a kernel of its own for dQ more warps that share K and
// V.
constexpr int kBlockQ[] = {16, 32, 48, 64, 80, 96, 128};
// Warps of the kernel of key tiles, and keys of each: more keys of a CTA read Q and dO less often from L2, and add to
// dQ less often; 32 keys a warp read them less often from shared memory too, but double the accumulators. Few warps are
// for short keys and for several CTAs on an SM.
constexpr int kWarps[] = {1, 2, 4, 8};
// Warps that share keys: a warp's dK and dV shrink, which wide heads need; P and dS go through shared memory.
constexpr int kQueryWarpCounts[] = {1, 2, 4};
constexpr int kMinHeadDimOfFourParts = 136;
// Pairs of tiles in flight: with one, a copy's latency is hidden by other CTAs only, but more of them fit.
constexpr int kStages[] = {1, 2, 3};
// CTAs that must fit on an SM: ptxas takes all the registers that it may have, which leaves room for one CTA.
constexpr int kMaxCtasPerSm = 4;
// A kernel of its own for dQ computes S and dP again, but adds nothing in memory; adds save two of seven products.
constexpr DqAccumulation kDqAccumulations[] = {DqAccumulation::separate_kernel, DqAccumulation::atomic,
                                               DqAccumulation::ordered};

// Adds to dQ that come in a burst at a step's end hold up the next step's copies and loads; before the other products
// they take registers from them.
std::vector<bool> dq_first_choices(const KernelConfig& config) {
  if (config.query_warps == 1 || config.dq == DqAccumulation::separate_kernel) return {false};
  return {false, true};
}

// Numbers of CTAs that limit the registers of either kernel, each differently: the others would give the same code.
std::vector<int> ctas_choices(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  const auto limits = [&](int ctas) {
    const int of_dq = config.dq == DqAccumulation::separate_kernel ? register_limit(shape.dq_threads, ctas, device) : 0;
    return std::pair(register_limit(shape.dkdv_threads, ctas, device), of_dq);
  };
  std::vector<int> choices = {1};
  for (int ctas = 2; ctas <= kMaxCtasPerSm; ++ctas) {
    if (limits(ctas) != limits(choices.back())) choices.push_back(ctas);
  }
  return choices;
}

void add_key_tiles(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
                   std::vector<KernelConfig>* configs) {
  for (const int keys : kKeysOfBackwardWarp) {
    config.block_kv = keys * (config.warps / config.query_warps);
    for (const int stages : kStages) {
      config.stages = stages;
      for (const DqAccumulation dq : kDqAccumulations) {
        config.dq = dq;
        if (sums_long_dq_in_registers(problem, config)) continue;
        for (const bool dq_first : dq_first_choices(config)) {
          config.dq_first = dq_first;
          for (const bool apart : kv_grad_choices(problem)) {
            config.kv_grad_per_query_head = apart;
            for (const int parts : query_part_choices(problem, config, device)) {
              config.query_parts = parts;
              for (const TileOrder order : key_tile_orders(problem, dq)) {
                config.tile_order = order;
                for (const int ctas : ctas_choices(problem, config, device)) {
                  config.ctas_per_sm = ctas;
                  configs->push_back(config);
                }
              }
            }
          }
        }
      }
    }
  }
}

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config = default_fields(FamilyWord::sm80);
  for (const int block_q : kBlockQ) {
    config.block_q = block_q;
    for (const int warps : kWarps) {
      config.warps = warps;
      for (const int split : kQueryWarpCounts) {
        const bool shares = warps % split == 0 && block_q % (16 * split) == 0;
        if (!shares || (split == 4 && problem.head_dim < kMinHeadDimOfFourParts)) continue;
        config.query_warps = split;
        add_key_tiles(problem, config, device, &configs);
      }
    }
  }
  return configs;
}

bool is_of_reduced_space(const AttentionProblem& problem, const KernelConfig& config) {
  const bool block_q = config.block_q == 32 || config.block_q == 64 || config.block_q == 128;
  const bool stages =
      config.stages == 2 || (config.stages == 1 && problem.head_dim > 128);  // wide heads fill shared memory
  // Apart as few warps serve the same end, more CTAs; a separate kernel for dQ with tickets for dK and dV seldom both.
  const bool apart =
      !config.kv_grad_per_query_head || (config.warps >= 4 && config.dq != DqAccumulation::separate_kernel);
  const bool dq_first = !config.dq_first || config.query_warps == 4;  // the widest heads add the most
  return block_q && config.warps >= 2 && stages && apart && dq_first && config.ctas_per_sm <= 2 &&
         config.tile_order == key_tile_orders(problem, config.dq).back();
}

}  // namespace

void enumerate_backward_sm80(const Question& question, SpaceExtent extent, std::vector<KernelConfig>* configs) {
  for (const KernelConfig& config : all_configs(question.problem, question.device)) {
    if (extent == SpaceExtent::whole || is_of_reduced_space(question.problem, config)) configs->push_back(config);
  }
}

}  // namespace attune
