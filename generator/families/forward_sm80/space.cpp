#include <algorithm>
#include <initializer_list>

#include "generator/device/register_limit.h"
#include "generator/families/forward_sm80/family.h"
#include "generator/families/forward_sm80/plan.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/problem/mask_geometry.h"

namespace attune {
namespace {

constexpr int kWarps[] = {1, 2, 4, 8};
constexpr int kRowsPerWarp[] = {16, 32, 48, 64};
constexpr int kBlockKv[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256};
constexpr int kStages[] = {1, 2, 3};
constexpr int kMaxBlockQ = 256;
constexpr int kMaxCtasPerSm = 4;
constexpr int kEstimateMargin = 16;  // registers by which a kernel may exceed its estimate

bool is_of_reduced_space(const KernelConfig& config, const AttentionProblem& problem) {
  const auto in = [](int value, std::initializer_list<int> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  const bool tiles =
      config.warps > 1 && in(config.block_q / config.warps, {16, 32, 64}) && in(config.block_kv, {32, 48, 64, 96, 128});
  const bool longest_first =
      config.tile_order == TileOrder::head_major_reversed || config.tile_order == TileOrder::tile_major_reversed;
  return tiles && longest_first == lengthens_tiles(problem.mask) &&
         (config.rescale_threshold > 0 || problem.invariant) && !config.even_tiles && config.ctas_per_sm == 1 &&
         !config.pack_gqa;
}

std::vector<TileOrder> tile_orders(const AttentionProblem& problem) {
  if (!lengthens_tiles(problem.mask))
    return {TileOrder::head_major, TileOrder::tile_major};  // all tiles take equally long
  return {TileOrder::head_major, TileOrder::head_major_reversed, TileOrder::tile_major, TileOrder::tile_major_reversed,
          TileOrder::l2_sections_reversed};
}

// Numbers of CTAs that limit the registers of a thread, each differently: the others would give the same code.
std::vector<int> ctas_choices(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  std::vector<int> choices = {1};
  for (int ctas = 2; ctas <= kMaxCtasPerSm; ++ctas) {
    const int limit = register_limit(shape.threads, ctas, device);
    const bool limits = limit < shape.registers_estimate + kEstimateMargin;
    if (limits && limit != register_limit(shape.threads, choices.back(), device)) choices.push_back(ctas);
  }
  return choices;
}

// The config, with parts of the keys where these may win, and both with the heads of a group in a tile.
void add_with_parts_and_groups(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device,
                               std::vector<KernelConfig>* configs) {
  const int parts = problem.invariant ? kFixedParts : kFillParts;
  const auto add = [&] {
    configs->push_back(config);
    if (forward_sm80_parts_may_win(problem, config, device)) configs->emplace_back(config).key_parts = parts;
  };
  add();
  config.pack_gqa = true;
  if ((config.rescale_threshold > 0 || problem.invariant) && pack_gqa_may_win(problem, config.block_q)) add();
}

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config;
  for (const int warps : kWarps) {
    config.warps = warps;
    for (const int rows : kRowsPerWarp) {
      config.block_q = rows * warps;
      if (config.block_q > kMaxBlockQ) continue;
      for (const int block_kv : kBlockKv) {
        config.block_kv = block_kv;
        for (const int stages : kStages) {
          config.stages = stages;
          for (const bool q_in_registers : {true, false}) {
            config.q_in_registers = q_in_registers;
            const std::vector<int> ctas_choice = ctas_choices(problem, config, device);
            for (const TileOrder order : tile_orders(problem)) {
              config.tile_order = order;
              for (const int threshold : {0, rescale_threshold_for(problem.dtype)}) {
                config.rescale_threshold = threshold;
                for (const bool whole : whole_tile_choices(problem, config.block_q, block_kv)) {
                  config.even_tiles = whole;
                  for (const int ctas : ctas_choice) {
                    config.ctas_per_sm = ctas;
                    add_with_parts_and_groups(problem, config, device, &configs);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace

void enumerate_forward_sm80(const Question& question, SpaceExtent extent, std::vector<KernelConfig>* configs) {
  for (const KernelConfig& config : all_configs(question.problem, question.device)) {
    if (extent == SpaceExtent::whole || is_of_reduced_space(config, question.problem))
      configs->push_back(promoted_for(question.problem, config));
  }
}

}  // namespace attune
