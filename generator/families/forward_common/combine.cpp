#include "generator/families/forward_common/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/families/invariance.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/families/shared/programmatic_launch.h"
#include "generator/families/shared/rows.h"
#include "generator/rounding.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

// Tiles of few rows, and of few queries, are those of decoding: rows are few and parts are many. There several warps
// share a row, so that its parts take few trips to memory. Else a warp has a row, of two in a CTA.
constexpr int kFewRows = 64, kFewQueries = 32, kWarpsOfFewRows = 4, kRowsOfCombine = 2;
constexpr int kThreadsOfAddition = 32;    // where parts are added in their order: few rows must reach many SMs
constexpr std::int64_t kRowsPerSm = 256;  // of partial results: what CTAs that fill an SM hold at most, and some
constexpr int kFewestParts = 2;
// Parts of a fixed number of keys are as many as long rows make them: so many times as many rows of results as others
// may have.
constexpr int kMoreRowsOfFixedParts = 8;
constexpr std::int64_t kLongestRow = std::int64_t{1} << 17;
constexpr std::size_t kStatisticsBytes = 2 * sizeof(float);  // of a row: its maximum and its sum

// A launch that follows another one: on 16 shapes the best trial with parts took 5.7 us in the median beyond what is
// predicted without this (docs/notebook/search.md). What SMs get from L2 together, of its rate, is predicted.
constexpr double kCombineLaunchMicroseconds = 5, kL2Share = 0.5;

std::int64_t rows_of(const AttentionProblem& problem) { return problem.row_batch() * problem.heads_q * problem.seq_q; }
std::int64_t most_rows(const DeviceSpec& device) { return kRowsPerSm * device.sm_count; }
std::int64_t most_rows_of_fixed_parts(const DeviceSpec& device) { return kMoreRowsOfFixedParts * most_rows(device); }

bool has_few_rows(const KernelConfig& config, const AttentionProblem& problem) {
  return config.block_q <= kFewRows && config.block_q / heads_of_tile(problem, config) <= kFewQueries;
}

std::size_t row_bytes(const AttentionProblem& problem) {
  return sizeof(float) * static_cast<std::size_t>(problem.head_dim_v());
}

void add_buffers(const AttentionProblem& problem, const KeySplit& split, KernelPlan* plan) {
  plan->buffers.push_back({.buffer = kPartialO, .bytes = row_bytes(problem), .split = split});
  plan->buffers.push_back({.buffer = kPartialStatistics, .bytes = kStatisticsBytes, .split = split});
}

ArgumentLayout combine_arguments(const AttentionProblem& problem) {
  Arguments fields = {Workspace{kPartialO}, Workspace{kPartialStatistics}};
  append_pointers(&fields, {Operand::o, Operand::lse});
  append_row_end(&fields, problem);
  append_strides(&fields, {Operand::o});
  if (problem.packed)
    append_pointers(&fields, {Operand::cu_seqlens_q});
  else
    fields.push_back(Scalar::batch);
  append(&fields, {Scalar::heads_q, Scalar::seq_q});
  append_score_unit(&fields, problem);
  append_dropout_scale(&fields, problem);
  if (!problem.adds_to_scores()) fields.push_back(Scalar::softmax_scale_log2);
  fields.push_back(Scalar::key_parts);
  return ArgumentLayout::of(std::move(fields));
}

}  // namespace

std::size_t promoted_sums_bytes(const AttentionProblem& problem, int rows) {
  constexpr int kStatisticsOfRow = 2 * 4;  // each of the four threads that share a row has both
  return sizeof(float) * static_cast<std::size_t>(rows) *
         static_cast<std::size_t>(problem.head_dim_v() + kStatisticsOfRow);
}

KeySplit key_split(const KernelConfig& config, const DeviceSpec& device, int slots, int tile_queries, int tile_heads) {
  if (config.key_parts == kFixedParts) return {.parts = kFixedParts, .least_keys = kKeysOfPart};
  if (config.key_parts != kFillParts) return {.parts = config.key_parts};
  return {.parts = kFillParts,
          .slots = slots,
          .tile_queries = tile_queries,
          .tile_heads = tile_heads,
          .least_keys = least_keys_of_part(config.block_kv),
          .most_rows = most_rows(device)};
}

void check_key_parts(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<std::string>* reasons) {
  if (config.key_parts == 1) return;
  if (config.key_parts == kFixedParts) {
    const std::int64_t parts = ceil_div(problem.seq_kv, kKeysOfPart), rows = rows_of(problem);
    if (rows <= most_rows_of_fixed_parts(device) / parts) return;
    reasons->push_back(
        fmt::format("parts=fixed: {} rows of all heads in {} parts of {} keys are more than the {} rows of "
                    "partial results that the workspace has room for on {}; leave the word out",
                    rows, parts, kKeysOfPart, most_rows_of_fixed_parts(device), device.name));
    return;
  }
  const bool fills = config.key_parts == kFillParts;
  const std::int64_t parts = fills ? kFewestParts : config.key_parts, rows = rows_of(problem);
  if (rows <= most_rows(device) / parts) return;
  reasons->push_back(fmt::format(
      "parts{}: {} rows of all heads in {} parts are more than the {} rows of partial results that the workspace has "
      "room for on {} ({} for each SM); {}",
      fills ? "=fill" : std::to_string(parts), rows, parts, most_rows(device), device.name, kRowsPerSm,
      rows <= most_rows(device) / kFewestParts ? "take fewer parts"
                                               : "so many rows fill it without parts: leave the word out"));
}

void add_combine(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, int headroom,
                 bool last_first, KernelPlan* plan) {
  const KeySplit split = plan->launches.front().split;
  if (!split.is_split()) return;
  const AttentionProblem& problem = plan->problem;
  KernelLaunch launch;
  launch.tile_rows = TileRows::following;
  const bool in_order = split.parts == kFixedParts;
  const int warps_of_row = !in_order && has_few_rows(plan->config, problem) ? kWarpsOfFewRows : 1;
  if (in_order) {
    launch.threads = kThreadsOfAddition;
    launch.rows_per_tile = kThreadsOfAddition / row_lanes(problem);
  } else {
    launch.rows_per_tile = warps_of_row > 1 ? 1 : kRowsOfCombine;
    launch.threads = 32 * warps_of_row * launch.rows_per_tile;
    launch.shared_bytes = static_cast<std::size_t>(warps_of_row - 1) * row_bytes(problem);
  }
  launch.split = split;
  launch.programmatic_launch = has_programmatic_launch(device);
  launch.arguments = combine_arguments(problem);
  TemplateBindings bindings;
  bindings.conditions["programmatic_launch"] = launch.programmatic_launch;
  bind_elements(problem, &bindings);
  bindings.set("head_dim_v", problem.head_dim_v());
  bind_score_unit(problem, &bindings);
  bind_unit(problem, &bindings);
  bind_row_end(problem, false, &bindings);
  bind_dropout_share(problem, false, &bindings);
  bindings.set("threads", launch.threads);
  bindings.set("rows_per_tile", launch.rows_per_tile);
  bindings.set("row_lanes", row_lanes(problem));
  if (in_order) {
    bindings.set("last_first", last_first ? "true" : "false");
  } else {
    bindings.set("warps_of_row", warps_of_row);
    bindings.set("headroom", headroom);
    bindings.set("row_heads", problem.packed ? "args.heads_q" : "args.batch * args.heads_q");
    bindings.conditions["packed_sequences"] = problem.packed;
  }
  bindings.set("chunk_access", chunk_access(problem));
  // Rows of packed sequences are those of one batch entry: whose they are does not matter here.
  bindings.set("sequence", "dense");
  render_launch(in_order ? "forward_add_parts" : "forward_combine", plan->kernel_class, device, templates, target,
                std::move(bindings), &launch);
  plan->launches.push_back(std::move(launch));
  add_buffers(problem, split, plan);
}

void add_most_partial_results(const AttentionProblem& problem, const DeviceSpec& device, KernelPlan* plan) {
  if (problem.invariant) {
    const std::int64_t fixed = std::min(most_rows_of_fixed_parts(device) / rows_of(problem),
                                        ceil_div(std::max(problem.seq_kv, kLongestRow), kKeysOfPart));
    if (fixed > 0) add_buffers(problem, {.parts = static_cast<int>(fixed)}, plan);
    return;
  }
  const std::int64_t parts = std::min<std::int64_t>(most_rows(device) / rows_of(problem), kMostKeyParts);
  if (parts >= kFewestParts) add_buffers(problem, {.parts = static_cast<int>(parts)}, plan);
}

double combine_microseconds(const AttentionProblem& problem, const KeySplit& split, const DeviceSpec& device) {
  if (!split.is_split()) return 0;
  const double bytes = static_cast<double>(rows_of(problem) * split.parts_of(problem)) *
                       static_cast<double>(row_bytes(problem) + kStatisticsBytes);
  const double bytes_per_microsecond = kL2Share * device.l2_bytes_per_clock * device.sm_count * device.clock_mhz;
  return kCombineLaunchMicroseconds + 2 * bytes / bytes_per_microsecond;
}

bool key_parts_may_win(const AttentionProblem& problem, const DeviceSpec& device, std::int64_t tiles, int block_kv) {
  if (problem.invariant) {
    const std::int64_t parts = ceil_div(problem.seq_kv, kKeysOfPart);
    return tiles < device.sm_count && parts > 1 && rows_of(problem) <= most_rows_of_fixed_parts(device) / parts;
  }
  return tiles < device.sm_count && problem.seq_kv >= kFewestParts * least_keys_of_part(block_kv) &&
         rows_of(problem) <= most_rows(device) / kFewestParts;
}

}  // namespace attune
