#include "generator/families/backward_common/sinks.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "generator/text/attention_bindings.h"

namespace attune {
namespace {

// So many loads are under way at once that a head's statistics come as fast as an SM takes them.
constexpr int kThreads = 1024;

}  // namespace

KernelLaunch sinks_launch(const AttentionProblem& problem, int block_q, StatisticsOrder order, SinksStart start,
                          TemplateBindings* bindings) {
  KernelLaunch launch;
  launch.tile_rows = TileRows::of_batch;
  launch.rows_per_tile = block_q;
  launch.threads = kThreads;
  launch.programmatic_launch = start != SinksStart::after;
  bindings->conditions["waits_first"] = start == SinksStart::programmatic;
  bindings->conditions["waits_last"] = start == SinksStart::beside;
  launch.shared_bytes = kThreads / 32 * sizeof(float);
  Arguments fields;
  append_pointers(&fields, {Operand::sinks, Operand::lse, Operand::d_sinks});
  fields.push_back(Workspace{kStatistics});
  append(&fields, {Scalar::batch, Scalar::heads_q, Scalar::seq_q, Scalar::query_tiles});
  if (problem.packed) {
    append_lengths(&fields, problem);
    fields.push_back(Scalar::seq_kv);
  }
  append_dropout_scale(&fields, problem);
  launch.arguments = ArgumentLayout::of(std::move(fields));
  bindings->set("per_share", per_share(problem));
  bind_stored_rows(problem, bindings);
  bindings->conditions["packed_sequences"] = problem.packed;
  bindings->set("threads", launch.threads);
  bindings->set("rows_per_tile", block_q);
  bindings->set("shared_bytes", static_cast<std::int64_t>(launch.shared_bytes));
  bindings->set("statistics_order", name_of(order));
  return launch;
}

}  // namespace attune
