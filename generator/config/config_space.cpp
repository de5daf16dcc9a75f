#include "generator/config/config_space.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "generator/device/register_limit.h"
#include "generator/families/backward_sm80/space.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/generate.h"

namespace attune {
namespace {
constexpr int kWarps[] = {1, 2, 4, 8};
constexpr int kRowsPerWarp[] = {16, 32, 48, 64};
constexpr int kBlockKv[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256};
constexpr int kStages[] = {1, 2, 3};
constexpr int kRescaleThresholds[] = {0, 8};
constexpr int kMaxBlockQ = 256;
constexpr int kMaxCtasPerSm = 4;
constexpr int kEstimateMargin = 16;         // registers by which a kernel may exceed its estimate
constexpr std::int64_t kWholeLength = 256;  // a dispatch class knows whether lengths are multiples of this

// Only those that were seen to win: all tiles take equally long without a mask; with one the longest come first.
std::vector<TileOrder> tile_orders_sm90(const AttentionProblem& problem) {
  if (problem.mask == MaskKind::none) return {TileOrder::rows, TileOrder::heads};
  return {TileOrder::sections_reversed, TileOrder::rows_reversed};
}

// The sm90 family's values.
constexpr int kConsumers[] = {1, 2, 3};
constexpr std::int64_t kShortSequence = 1024;  // of queries, whose tiles and launches are small
constexpr int kMinBlockKvSm90 = 32, kMaxBlockKv = 256;
constexpr int kStagesSm90[] = {1, 2, 3, 4};
constexpr int kMaxHeadDimWithQ = 128;  // beyond, fragments of Q leave no registers for anything else

bool has_rare_choice(const KernelConfig& config) {
  return config.v_stages != 0 || config.cluster != 1 || config.p_in_shared || config.emulated_exponentials != 0 ||
         config.packed_heads || config.warpgroup_order == WarpgroupOrder::ping_pong ||
         config.l2_parts != KernelConfig().l2_parts;
}

bool is_of_reduced_space(const KernelConfig& config, const AttentionProblem& problem) {
  const auto in = [](int value, std::initializer_list<int> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  if (config.family == KernelFamily::sm90) {
    const bool tiles = in(config.block_kv, {48, 64, 80, 96, 112, 128, 176}) && in(config.stages, {2, 3});
    const bool few_rescalings = problem.dtype == DataType::bf16 ? config.without_maximum : config.rescale_threshold > 0;
    const bool persistent = config.persistence == Persistence::on_demand && config.q_stages == 2;
    return tiles && few_rescalings && config.overlap == Overlap::within && !config.whole_tiles &&
           config.ctas_per_sm == 1 && !has_rare_choice(config) &&
           (persistent || config.persistence == Persistence::none);
  }
  const bool tiles =
      config.warps > 1 && in(config.block_q / config.warps, {16, 32, 64}) && in(config.block_kv, {32, 48, 64, 96, 128});
  const bool longest_first =
      config.tile_order == TileOrder::rows_reversed || config.tile_order == TileOrder::heads_reversed;
  return tiles && longest_first == (problem.mask == MaskKind::causal) && config.rescale_threshold > 0 &&
         !config.whole_tiles && config.ctas_per_sm == 1;
}

std::vector<TileOrder> tile_orders(const AttentionProblem& problem) {
  if (problem.mask == MaskKind::none) return {TileOrder::rows, TileOrder::heads};  // all tiles take equally long
  return {TileOrder::rows, TileOrder::rows_reversed, TileOrder::heads, TileOrder::heads_reversed,
          TileOrder::sections_reversed};
}

// A plan for whole tiles serves a whole dispatch class, so its tiles must divide the lengths of all its members.
std::vector<bool> whole_choices(const AttentionProblem& problem, int block_q, int block_kv) {
  const bool lengths = problem.seq_q % kWholeLength == 0 && problem.seq_kv % kWholeLength == 0;
  if (lengths && kWholeLength % block_q == 0 && kWholeLength % block_kv == 0) return {false, true};
  return {false};
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

// How a row's reference follows its scores.
struct Reference {
  int rescale_threshold;
  bool without_maximum;
};
std::vector<Reference> references(const AttentionProblem& problem) {
  if (problem.dtype == DataType::bf16) return {{0, false}, {8, false}, {0, true}};
  return {{0, false}, {8, false}};
}

// Choices that win rarely, if ever, each alone: together, and with every value of the commoner ones, they would make
// the space several times as large.
constexpr int kMinHeadDimOfCluster = 128;
constexpr int kMaxHeadDimOfEmulation = 64;  // beyond, the special function unit has time to spare
constexpr int kEmulatedExponentials[] = {2, 4};
constexpr int kMinHeadDimOfSharedP = 40, kMaxHeadDimOfSharedP = 128, kMinBlockKvOfSharedP = 112;

// Stages of V: another number than of K only where shared memory does not hold the larger one of both, for then the
// ring that waits more may have what is left. Without overlap both wait alike.
void add_stages_of_v(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<KernelConfig>* configs) {
  if (config.overlap == Overlap::none) return;
  const auto fits = [&](const KernelConfig& other) {
    return forward_sm90_shape(problem, other, device).shared_bytes <=
           static_cast<std::size_t>(device.shared_bytes_per_block);
  };
  for (const int v_stages : {config.stages - 1, config.stages + 1}) {
    KernelConfig uneven = config, even = config;
    uneven.v_stages = v_stages;
    even.stages = std::max(config.stages, v_stages);
    if (v_stages >= 1 && even.stages <= kStagesSm90[std::size(kStagesSm90) - 1] && fits(uneven) && !fits(even))
      configs->push_back(uneven);
  }
}

// Two consumers with wide heads want more from L2 than it gives, and a third one, which would ease that, has no
// registers for its O.
void add_cluster(const AttentionProblem& problem, const KernelConfig& config, std::vector<KernelConfig>* configs) {
  if (config.block_q != 128 || problem.head_dim < kMinHeadDimOfCluster || problem.seq_q <= config.block_q ||
      config.overlap == Overlap::across)
    return;
  configs->emplace_back(config).cluster = 2;
}

// Smaller sections: at D = 256, S = 4096 those of a quarter of L2 were 7 % faster, elsewhere up to 3 % slower.
void add_sections(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                  std::vector<KernelConfig>* configs) {
  constexpr int kSmallerParts = 4;
  const std::int64_t kv_bytes =
      2 * problem.batch * problem.heads_kv * problem.seq_kv * problem.head_dim * size_of(problem.dtype);
  if (config.tile_order == TileOrder::sections_reversed && kv_bytes > device.l2_bytes / kSmallerParts)
    configs->emplace_back(config).l2_parts = kSmallerParts;
}

void add_rarer_configs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       std::vector<KernelConfig>* configs) {
  const bool few_rescalings = config.rescale_threshold > 0 || config.without_maximum;
  if (!few_rescalings || config.ctas_per_sm > 1) return;
  if (problem.head_dim <= kMaxHeadDimOfEmulation && config.overlap == Overlap::within) {
    for (const int emulated : kEmulatedExponentials) configs->emplace_back(config).emulated_exponentials = emulated;
  }
  add_sections(problem, config, device, configs);
  if (config.q_in_registers) return;
  add_stages_of_v(problem, config, device, configs);
  add_cluster(problem, config, configs);
  if (packed_heads_may_win(problem, config.block_q)) configs->emplace_back(config).packed_heads = true;
  if (config.block_q > 64 && config.overlap == Overlap::none && config.warpgroup_order == WarpgroupOrder::free)
    configs->emplace_back(config).warpgroup_order = WarpgroupOrder::ping_pong;
  // It frees registers: for wide steps of three consumers.
  if (config.block_q == 192 && config.block_kv >= kMinBlockKvOfSharedP && problem.head_dim >= kMinHeadDimOfSharedP &&
      problem.head_dim <= kMaxHeadDimOfSharedP && config.overlap != Overlap::none)
    configs->emplace_back(config).p_in_shared = true;
}

std::vector<KernelConfig> all_sm90_configs(const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<KernelConfig> configs;
  KernelConfig config = default_fields(KernelFamily::sm90);
  for (const int consumers : kConsumers) {
    config.block_q = 64 * consumers;
    for (config.block_kv = kMinBlockKvSm90; config.block_kv <= kMaxBlockKv; config.block_kv += 16) {
      for (const int stages : kStagesSm90) {
        config.stages = stages;
        for (const bool q_in_registers : {false, true}) {
          if (q_in_registers && problem.head_dim > kMaxHeadDimWithQ) continue;
          config.q_in_registers = q_in_registers;
          for (const TileOrder order : tile_orders_sm90(problem)) {
            config.tile_order = order;
            for (const Reference reference : references(problem)) {
              config.rescale_threshold = reference.rescale_threshold;
              config.without_maximum = reference.without_maximum;
              for (const bool whole : whole_choices(problem, config.block_q, config.block_kv)) {
                config.whole_tiles = whole;
                for (const TileSource& source : kTileSources) {
                  config.persistence = source.persistence;
                  config.q_stages = source.q_stages;
                  for (const Overlap overlap : {Overlap::none, Overlap::within, Overlap::across}) {
                    if (overlap == Overlap::across && source.persistence == Persistence::none) continue;
                    config.overlap = overlap;
                    for (const WarpgroupOrder turns : {WarpgroupOrder::free, WarpgroupOrder::turns}) {
                      if (turns != WarpgroupOrder::free && consumers == 1) continue;
                      config.warpgroup_order = turns;
                      for (const int ctas : {1, 2}) {
                        if (ctas > 1 && consumers > 1) continue;
                        config.ctas_per_sm = ctas;
                        configs.push_back(config);
                        add_rarer_configs(problem, config, device, &configs);
                      }
                    }
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

std::vector<KernelConfig> all_sm80_configs(const AttentionProblem& problem, const DeviceSpec& device) {
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
              for (const int threshold : kRescaleThresholds) {
                config.rescale_threshold = threshold;
                for (const bool whole : whole_choices(problem, config.block_q, block_kv)) {
                  config.whole_tiles = whole;
                  for (const int ctas : ctas_choice) {
                    config.ctas_per_sm = ctas;
                    configs.push_back(config);
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

std::vector<KernelConfig> all_configs(const AttentionProblem& problem, const DeviceSpec& device, SpaceExtent extent) {
  if (problem.pass == Pass::backward) {
    std::vector<KernelConfig> configs = backward_configs(problem, device);
    if (extent == SpaceExtent::reduced)
      std::erase_if(configs,
                    [&](const KernelConfig& config) { return !is_of_reduced_backward_space(problem, config); });
    return configs;
  }
  std::vector<KernelConfig> configs = all_sm80_configs(problem, device);
  if (device.compute_major == 9 && problem.alignment >= 16) {
    const std::vector<KernelConfig> more = all_sm90_configs(problem, device);
    configs.insert(configs.end(), more.begin(), more.end());
  }
  if (extent == SpaceExtent::reduced)
    std::erase_if(configs, [&](const KernelConfig& config) { return !is_of_reduced_space(config, problem); });
  return configs;
}
}  // namespace

bool packed_heads_may_win(const AttentionProblem& problem, int block_q) {
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  return group > 1 && block_q % group == 0 && problem.seq_q <= kShortSequence;
}

std::string_view to_string(SpaceExtent extent) { return extent == SpaceExtent::whole ? "whole" : "reduced"; }

std::optional<SpaceExtent> parse_space_extent(std::string_view text) {
  for (const SpaceExtent extent : {SpaceExtent::whole, SpaceExtent::reduced}) {
    if (text == to_string(extent)) return extent;
  }
  return std::nullopt;
}

std::vector<Candidate> config_space(const AttentionProblem& problem, const DeviceSpec& device, SpaceExtent extent) {
  validate(problem);
  struct Named {
    Candidate candidate;
    std::string text;
  };
  std::vector<KernelConfig> configs = all_configs(problem, device, extent);
  const KernelConfig default_choice = default_config(problem, device);
  if (std::find(configs.begin(), configs.end(), default_choice) == configs.end()) configs.push_back(default_choice);
  std::vector<Named> named;
  for (const KernelConfig& config : configs) {
    Named entry{{config, infeasibility(problem, config, device), {}}, canonical_text(config)};
    if (entry.candidate.feasible()) entry.candidate.cost = estimate_cost(problem, config, device);
    named.push_back(std::move(entry));
  }
  std::sort(named.begin(), named.end(), [](const Named& a, const Named& b) {
    if (a.candidate.feasible() != b.candidate.feasible()) return a.candidate.feasible();
    const double a_cost = a.candidate.cost.microseconds, b_cost = b.candidate.cost.microseconds;
    return a_cost != b_cost ? a_cost < b_cost : a.text < b.text;
  });
  std::vector<Candidate> candidates;
  candidates.reserve(named.size());
  for (Named& entry : named) candidates.push_back(std::move(entry.candidate));
  return candidates;
}

}  // namespace attune
