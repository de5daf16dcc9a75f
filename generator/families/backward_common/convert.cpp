#include "generator/families/backward_common/convert.h"

#include <utility>

#include "generator/families/shared/rows.h"
#include "generator/text/attention_bindings.h"

namespace attune {
namespace {

Arguments convert_arguments(const AttentionProblem& problem, bool of_keys) {
  Arguments fields;
  if (of_keys) {
    fields = {Workspace{kDkSums}, Workspace{kDvSums}};
    append_pointers(&fields, {Operand::d_k, Operand::d_v});
    append_strides(&fields, {Operand::d_k, Operand::d_v});
    append(&fields, {Scalar::heads_kv, Scalar::seq_kv, Scalar::key_tiles});
  } else {
    fields = {Workspace{kDqSums}, Pointer{Operand::d_q}};
    append_strides(&fields, {Operand::d_q});
    append(&fields, {Scalar::heads_q, Scalar::seq_q, Scalar::query_tiles});
  }
  if (problem.packed) {
    append_lengths(&fields, problem);
    append(&fields, {Scalar::batch, of_keys ? Scalar::seq_q : Scalar::seq_kv});
  }
  fields.push_back(Scalar::softmax_scale);
  append_dropout_scale(&fields, problem);
  return fields;
}

}  // namespace

bool divides_at_store(const AttentionProblem& problem, const KernelConfig& config) {
  return problem.dropout != 0 && !config.fused_dbias;
}

std::string ds_scale(const AttentionProblem& problem, const KernelConfig& config) {
  return divides_at_store(problem, config) ? "args.softmax_scale * args.dropout_scale" : "args.softmax_scale";
}

KernelLaunch convert_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            bool of_keys, bool transposed, bool programmatic, bool followed,
                            TemplateBindings* bindings) {
  KernelLaunch launch;
  if (of_keys) launch.entry = "attune_backward_convert_keys";
  launch.tile_rows = of_keys ? TileRows::keys : TileRows::queries;
  launch.threads = kThreadsOfRows;
  launch.programmatic_launch = programmatic;
  bindings->conditions["programmatic_launch"] = programmatic;
  bindings->conditions["followed"] = followed;
  launch.rows_per_tile = of_keys ? config.block_kv : config.block_q;
  launch.arguments = ArgumentLayout::of(convert_arguments(problem, of_keys));
  bindings->set("threads", launch.threads);
  bindings->set("rows_per_tile", launch.rows_per_tile);
  bindings->set("rows_of", of_keys ? "keys" : "queries");
  bindings->set("row", of_keys ? "key" : "query");
  bind_stored_rows(problem, bindings);
  bindings->conditions["packed_sequences"] = problem.packed;
  bindings->set("begins", of_keys ? "cu_seqlens_kv" : "cu_seqlens_q");
  bindings->set("all_rows", of_keys ? "seq_kv" : "seq_q");
  bindings->set("head_dim_qk", problem.head_dim_qk());  // and dV's, whose rows are as long as dK's
  bindings->set("heads", of_keys ? "heads_kv" : "heads_q");
  bindings->set("tiles", of_keys ? "key_tiles" : "query_tiles");
  auto& gradients = bindings->lists["gradients"];
  const std::string scale = ds_scale(problem, config), of_share = divides_at_store(problem, config) ? " / share" : "";
  if (of_keys) {
    gradients.push_back({{"name", "d_k"}, {"scale", scale}, {"formula", "dK = scale·sums" + of_share + ", rounded"}});
    gradients.push_back({{"name", "d_v"},
                         {"scale", dv_scale(problem)},
                         {"formula", problem.dropout != 0 ? "dV = sums / share, rounded" : "dV = sums, rounded"}});
  } else {
    gradients.push_back({{"name", "d_q"}, {"scale", scale}, {"formula", "dQ = scale·sums" + of_share + ", rounded"}});
  }
  bindings->set("chunk_access", chunk_access(problem));
  bindings->set("sums_order", sums_order(device));
  bindings->conditions["transposed_sums"] = transposed;
  bindings->set("sums_layout", transposed ? "sums_transposed" : "sums");
  if (transposed) {
    bindings->set("converting_warp",
                  "// Sums lie transposed. A warp takes 8 rows and four chunks of columns at a time; a lane writes a "
                  "whole chunk of a row.");
  } else {
    bindings->set("converting_warp",
                  "// A warp takes 16 rows and four chunks of columns at a time; a lane writes whole chunks of a row.");
    bindings->set("convert_units", "kTileRows / 16 * kParts");
    bindings->set("convert_warps", "kThreads / kWarpSize");
    bindings->set("load_sums", "load_sums");
  }
  return launch;
}

const char* sums_order(const DeviceSpec& device) { return device.compute_major >= 9 ? "vector" : "scalar"; }

}  // namespace attune
