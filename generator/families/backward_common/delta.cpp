#include "generator/families/backward_common/delta.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/shared/rows.h"
#include "generator/text/attention_bindings.h"

namespace attune {
namespace {
constexpr int kMostCtasOfRows = 16;  // of an SM, that any GPU runs

Arguments delta_arguments(const AttentionProblem& problem) {
  Arguments fields;
  append_pointers(&fields, {Operand::o, Operand::d_o, Operand::lse, Operand::d_lse});
  fields.push_back(Workspace{kStatistics});
  append_strides(&fields, {Operand::o, Operand::d_o});
  append(&fields, {Scalar::heads_q, Scalar::seq_q, Scalar::query_tiles});
  append_lengths(&fields, problem);
  if (problem.has_used_lengths()) fields.push_back(Scalar::seq_kv);
  if (problem.packed) append(&fields, {Scalar::batch, Workspace{kKeyTileList}});
  if (problem.dropout != 0) fields.push_back(Scalar::dropout);
  return fields;
}

}  // namespace

const char* name_of(StatisticsOrder order) { return order == StatisticsOrder::pairs ? "pairs" : "columns"; }

KernelLaunch delta_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                          StatisticsOrder order, bool followed, TemplateBindings* bindings) {
  const int block_q = config.block_q;
  KernelLaunch launch;
  const int lanes = std::max(2, row_lanes(problem));  // so that a warp's rows divide any block
  launch.threads = kThreadsOfRows;
  while (block_q % (launch.threads / lanes) != 0) launch.threads /= 2;
  launch.rows_per_tile = block_q;
  launch.arguments = ArgumentLayout::of(delta_arguments(problem));
  bindings->set("threads", launch.threads);
  bindings->set("rows_per_tile", launch.rows_per_tile);
  bindings->set("row_lanes", lanes);
  bindings->set("row_access", problem.alignment >= 16 ? "whole" : "elements");
  bindings->conditions["programmatic_launch"] = followed;
  bindings->set("statistics_order", name_of(order));
  bindings->conditions["vanishing_rows"] = problem.bias != PairTensor::none;
  bindings->conditions["dropout"] = problem.dropout != 0;
  bindings->set("delta", problem.dropout != 0 ? "(1.0f - args.dropout) * (sum - d_lse)" : "sum - d_lse");
  bind_sequence(problem, bindings);
  bindings->conditions["packed_sequences"] = problem.packed;
  bindings->set("tile_of_sequence", problem.packed ? "found.tile" : "tile");
  bind_list_of_key_tiles(config, bindings);
  // What few CTAs do for the list must not take registers from all: rows come as fast as many loads are under way.
  const int ctas = std::min(kMostCtasOfRows, device.threads_per_sm / launch.threads);
  bindings->set("launch_bounds", problem.packed ? fmt::format("kThreads, {}", ctas) : "kThreads");
  bindings->set("head_dim_v", problem.head_dim_v());
  return launch;
}

}  // namespace attune
