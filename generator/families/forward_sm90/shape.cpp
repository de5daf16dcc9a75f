#include "generator/families/forward_sm90/shape.h"

#include <algorithm>

#include "generator/device/register_limit.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/wgmma.h"
#include "generator/problem/element_type.h"
#include "generator/rounding.h"

namespace attune {
namespace {
constexpr int kNumberBytes = 4, kRecordBytes = 32, kRecordAlignment = 16;
// The one whose results are stored, the one that is computed, the one whose keys are copied, and the one that is looked
// for; a power of two, for places are counted through all rounds.
constexpr int kTileRecords = 4;

BarrierLayout barrier_layout(const KernelConfig& config, int v_stages, bool packed) {
  const bool clustered = config.cluster > 1;
  BarrierLayout layout;
  const auto take = [&](int count, int bytes) {
    const int begin = layout.bytes;
    layout.bytes += count * bytes;
    return begin;
  };
  const auto ring = [&](const char* name, int stages) {
    const int full = take(stages, kMbarrierBytes), empty = take(stages, kMbarrierBytes);
    return BarrierLayout::Ring{name, stages, full, empty};
  };
  layout.rings = {ring("q", config.q_stages), ring("k", config.stages), ring("v", v_stages)};
  if (config.pair_stages > 0) layout.pairs() = ring("pairs", config.pair_stages);
  if (packed) layout.records() = ring("record", kTileRecords);
  layout.passing = take(clustered ? 1 : 0, kMbarrierBytes);
  layout.asked = take(packed ? 1 : 0, kMbarrierBytes);
  layout.tile_numbers = take(config.q_stages + (clustered ? 1 : 0), kNumberBytes);
  if (packed) {
    layout.bytes = static_cast<int>(round_up(layout.bytes, kRecordAlignment));
    layout.tile_records = take(kTileRecords, kRecordBytes);
  }
  return layout;
}

bool has_registers_of_pairs(const AttentionProblem& problem, const KernelConfig& config,
                            const ForwardSm90Shape& shape) {
  constexpr int kOthers = 30, kElementsOfWord = 2;  // a mask's words hold four bytes, of which a thread has two
  const int elements = config.block_kv / 2;
  int words = 0;
  if (problem.bias != PairTensor::none) words += problem.bias_fp32 ? elements : elements / kElementsOfWord;
  if (problem.attention_mask != PairTensor::none) words += elements / kElementsOfWord;
  const int limit = shape.consumer_registers > 0 ? shape.consumer_registers : shape.launch_registers;
  return shape.accumulator_registers + words + kOthers <= limit;
}
}  // namespace

ForwardSm90Shape forward_sm90_shape(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  ForwardSm90Shape shape;
  const int d = problem.head_dim;
  shape.consumers = config.block_q / kWarpgroupRows;
  shape.threads = (shape.consumers + 1) * kWarpgroupThreads;
  shape.group = heads_of_tile(problem, config);
  shape.panel_columns = panel_columns(d);
  shape.panels = ceil_div(d, shape.panel_columns);

  const auto element_bytes = static_cast<std::size_t>(size_of(problem.dtype));
  const std::size_t row_bytes = element_bytes * static_cast<std::size_t>(shape.panels * shape.panel_columns);
  shape.q_tile_bytes = row_bytes * static_cast<std::size_t>(config.block_q);
  shape.kv_tile_bytes = row_bytes * static_cast<std::size_t>(config.block_kv);
  shape.kv_box_rows = config.block_kv / config.cluster;
  shape.v_stages = config.v_stages > 0 ? config.v_stages : config.stages;
  const auto add_tiles = [&](const char* name, const char* label, int stages, int rows) {
    shape.shared.add({name, label, {stages, shape.panels, rows, shape.panel_columns}, element_bytes},
                     kSwizzledTileAlignment);
  };
  add_tiles("kQOffset", "Q", config.q_stages, config.block_q);
  add_tiles("kKOffset", "K", config.stages, config.block_kv);
  add_tiles("kVOffset", "V", shape.v_stages, config.block_kv);
  if (config.p_in_shared) {
    shape.p_panels = ceil_div(config.block_kv, shape.panel_columns);
    shape.p_bytes = element_bytes * static_cast<std::size_t>(config.block_q * shape.p_panels * shape.panel_columns);
    shape.shared.add(
        {"kPOffset", "P", {shape.consumers, shape.p_panels, kWarpgroupRows, shape.panel_columns}, element_bytes},
        kSwizzledTileAlignment);
  }
  if (config.pair_stages > 0) {
    shape.pair_tiles = PairTiles(problem, config.block_kv);
    shape.pair_tiles.add_to(&shape.shared, config.pair_stages, config.block_q);
  }
  if (problem.dropout != 0)
    shape.shared.add({"kDropoutOffset", "dropout of the warps", {4 * shape.consumers, 4}, sizeof(std::uint32_t)}, 16);
  shape.barriers = barrier_layout(config, shape.v_stages, problem.packed);
  shape.shared.add({"kBarrierOffset", "barriers, numbers of tiles", {}, static_cast<std::size_t>(shape.barriers.bytes)},
                   problem.packed ? kRecordAlignment : kMbarrierBytes);

  shape.product_columns = std::max(d, config.block_kv);
  shape.accumulator_registers = d / 2 + config.block_kv / 2;
  if (!config.p_in_shared) shape.accumulator_registers += config.block_kv / 4;
  if (config.q_in_registers) shape.accumulator_registers += (d + 15) / 16 * 4;
  shape.launch_registers = register_limit(shape.threads, config.ctas_per_sm, device) / 8 * 8;
  // A single consumer with an SM to itself has all that a thread can have. Otherwise the producer gives up most of its
  // registers; together they hold what the launch took.
  if (shape.consumers > 1 || config.ctas_per_sm > 1) {
    // In a cluster a producer of several tiles spills with 24.
    const bool many_tiles_shared = config.cluster > 1 && config.tile_scheduler != TileScheduler::single;
    const int fewest = shape.consumers == 3 || many_tiles_shared ? 32 : 24;
    shape.producer_registers = config.producer_registers > 0 ? config.producer_registers : fewest;
    const int pool = shape.launch_registers * (shape.consumers + 1) - shape.producer_registers;
    shape.consumer_registers = std::min(kMostRegistersOfThread, pool / shape.consumers / 8 * 8);
  }
  shape.pairs_ahead = shape.pair_tiles.any() && has_registers_of_pairs(problem, config, shape);
  return shape;
}

}  // namespace attune
