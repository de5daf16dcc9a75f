#include "generator/families/shared/bindings.h"

#include <algorithm>

#include "generator/families/invariance.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/text/attention_bindings.h"

namespace attune {
std::string partial_name(std::string_view word) {
  std::string name(word);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string initializers(const AttentionProblem& problem, const std::string& alibi, const std::string& pairs) {
  return (problem.alibi ? alibi : "") + (problem.alibi && problem.has_pair_tensors() ? ", " : "") +
         (problem.has_pair_tensors() ? pairs : "");
}

void bind_invariance(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings) {
  const bool split = config.key_parts != 1;
  bindings->conditions["invariant"] = problem.invariant;
  bindings->conditions["adds_sums"] = adds_parts_of_keys(problem, config);
  if (split) bindings->set("partial_o", problem.invariant ? "O" : "O / l");
  bindings->set("part_blocks", kKeysOfPart / config.block_kv);
  bindings->set("parts_meet", split ? ", by a CTA of its own" : ", and added to those before it");
}

void bind_forward(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings) {
  bind_elements(problem, bindings);
  bind_head_dims(problem, bindings);
  bind_attention(problem, bindings);
  bind_score_terms(problem, config.pair_stages > 0, bindings);
  bind_key_blocks(config.key_parts != 1, problem.alibi, bindings);
  bind_row_end(problem, config.key_parts != 1, bindings);
  bind_dropout(problem, bindings);
  bind_dropout_share(problem, config.key_parts != 1, bindings);
  bindings->conditions["packed"] = config.pack_gqa;
  bind_head_of_batch(problem, bindings);
  bindings->set("tile_heads_of_batch", config.pack_gqa ? "args.heads_kv" : "args.heads_q");
  bindings->set("group", heads_of_tile(problem, config));
  bindings->conditions["packed_sequences"] = problem.packed;
  bind_sequence_words(problem, bindings);
  bindings->set("tile_positions", config.pack_gqa ? "kBlockQ / kGroup" : "kBlockQ");
  bindings->conditions["split"] = config.key_parts != 1;
  bindings->set("results", config.key_parts != 1 ? "partial" : "output");
  bind_score_unit(problem, bindings);
  bind_invariance(problem, config, bindings);
  if (config.tile_order != TileOrder::head_major && config.tile_order != TileOrder::head_major_reversed) {
    const std::string heads = config.pack_gqa ? "args.heads_kv" : "args.heads_q";
    bindings->set("tile_heads", problem.packed ? heads : "args.batch * " + heads);
  }
  bindings->set("tile_order", partial_name(to_string(config.tile_order)));
}

std::size_t section_bytes(const KernelConfig& config, const DeviceSpec& device) {
  return static_cast<std::size_t>(device.l2_bytes / config.l2_parts);
}

}  // namespace attune
