#include "generator/text/attention_bindings.h"

#include <string>

#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/operand_shape.h"

namespace attune {

void bind_elements(const AttentionProblem& problem, TemplateBindings* bindings) {
  const ElementFacts& element = facts_of(problem.dtype);
  bindings->set("dtype", std::string(element.ptx));
  bindings->set("element_bytes", element.bytes);
}

void bind_head_dims(const AttentionProblem& problem, TemplateBindings* bindings) {
  bindings->set("head_dim_qk", problem.head_dim_qk());
  bindings->set("head_dim_v", problem.head_dim_v());
}

void bind_stored_rows(const AttentionProblem& problem, TemplateBindings* bindings) {
  bindings->set("sequence", problem.packed ? "packed" : "dense");
  if (problem.packed) bindings->conditions["longest_sequence"] = problem.has_longest_sequence();
}

void bind_sequence(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_stored_rows(problem, bindings);
  if (problem.has_used_lengths() && !problem.packed) bindings->set("sequence", "used");
}

void bind_sequence_words(const AttentionProblem& problem, TemplateBindings* bindings) {
  bindings->set("sequence_rows", problem.packed ? "`cu_seqlens_q` and `cu_seqlens_kv` name" : "lie in the tensors");
}

void bind_mask(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_sequence(problem, bindings);
  bindings->set("mask", std::string(to_string(problem.mask)));
  bindings->conditions["short_sequences"] = problem.has_used_lengths();
}

void bind_attention(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_mask(problem, bindings);
  bindings->set("score", problem.softcap != 0 ? "softcap" : "plain");
  bindings->conditions["masked_begin"] = hides_first_keys(problem.mask);
}

namespace {

constexpr const char* kLog2E = "1.44269504088896340736f";

std::string argument_of_scale(const AttentionProblem& problem) {
  return problem.softcap != 0 ? "args.softcap" : "args.softmax_scale";
}

// What attention/alibi and attention/pair_tensors name.
void bind_coordinates(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool powers_of_two = problem.pass == Pass::backward;
  bindings->conditions["alibi"] = problem.alibi;
  bindings->conditions["powers_of_two"] = powers_of_two;
  bindings->set("alibi_unit", powers_of_two ? std::string(kLog2E).append(" * ") : std::string());
  bindings->conditions["bias"] = problem.bias != PairTensor::none;
  bindings->conditions["attention_mask"] = problem.attention_mask != PairTensor::none;
  bindings->conditions["pair_gain"] = problem.pass == Pass::backward;
  const ElementFacts& element = facts_of(operand_shape(problem, Operand::bias).element);
  bindings->set("bias_bytes", element.bytes);
  const std::string place = "of_query + " + std::to_string(element.bytes) + " * static_cast<i64>(key)";
  bindings->set("load_bias", element.bytes == 4
                                 ? "ld_global_f32(reinterpret_cast<const float*>(" + place + "))"
                                 : "cvt_f32_low_" + std::string(element.ptx) + "(ld_global_b16(" + place + "))");
}

}  // namespace

void bind_head_of_batch(const AttentionProblem& problem, TemplateBindings* bindings) {
  std::string repeats;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    const std::string stride = "args." + std::string(identifier(operand)) + "_stride_";
    repeats += (repeats.empty() ? "(" : " || (") + stride + "batch == 0 && " + stride + "head != 0)";
  }
  bindings->set("repeats_along_batch", repeats);
}

void bind_score_unit(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool natural = problem.adds_to_scores();
  bindings->set("score_unit", natural ? "1.0f" : argument_of_scale(problem));
  bindings->set("exponent_scale", natural ? kLog2E : "args.softmax_scale_log2");
}

void bind_unit(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool natural = problem.adds_to_scores() && problem.pass == Pass::forward;
  bindings->set("unit", natural ? "1" : problem.softcap != 0 ? "softcap" : "scale");
}

void bind_score_words(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_unit(problem, bindings);
  bindings->conditions["capped"] = problem.softcap != 0;
}

void bind_score_terms(const AttentionProblem& problem, bool pair_tiles, TemplateBindings* bindings) {
  const bool biased = problem.bias != PairTensor::none, masked = problem.attention_mask != PairTensor::none;
  bind_score_words(problem, bindings);
  bind_coordinates(problem, bindings);
  bindings->conditions["added"] = problem.adds_to_scores();
  bindings->conditions["pair_tensors"] = problem.has_pair_tensors();
  bindings->conditions["score_terms"] = problem.adds_to_scores() || masked;
  bindings->set("scaled", problem.softcap != 0 ? "softcap" : "scale");
  bindings->set("added_words",
                std::string(problem.alibi ? " - slope·|key - diagonal|" : "") + (biased ? " + bias" : ""));
  bindings->set("added_note", problem.alibi ? "; the diagonal of the last query ends at the last key" : "");
  bindings->set("may_hide", problem.has_pair_tensors() ? "true" : "kMasked");
  bindings->set("args_of_terms", problem.adds_to_scores() ? "args" : "/*args*/");
  bindings->set("score_scale", argument_of_scale(problem));
  bindings->conditions["loads_pairs"] = problem.has_pair_tensors() && !pair_tiles;
  bindings->set("distance_of_terms", problem.alibi || !pair_tiles ? "distance" : "/*distance*/");
  bindings->set("elements_of_pair", std::string(pair_tiles && biased ? ", float bias" : "") +
                                        (pair_tiles && masked ? ", bool attends" : ""));
  bindings->set("is_hidden", pair_tiles ? "!attends" : "!attends(pairs.mask, key)");
  bindings->set("added_score", std::string(problem.alibi ? "alibi.of<kEdge>(distance)" : "") +
                                   (problem.alibi && biased ? " + " : "") +
                                   (!biased      ? ""
                                    : pair_tiles ? "bias"
                                                 : "bias_of_key(pairs.bias, key)"));
  bindings->set("pair_rows", std::string(biased ? "bias(bias_of_query(args, sequence, head, query))" : "") +
                                 (biased && masked ? ", " : "") +
                                 (masked ? "mask(attention_mask_of_query(args, sequence, head, query))" : ""));
}

void bind_exponent_words(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_score_words(problem, bindings);
  bind_coordinates(problem, bindings);
  const bool biased = problem.bias != PairTensor::none;
  std::string words = problem.alibi ? "-slope·|key - diagonal|" : "";
  if (biased) words += words.empty() ? "bias" : " + bias";
  bindings->set("gained_words", words.empty() ? "0" : words);
  bindings->set("added_note",
                std::string(problem.alibi ? "; the diagonal of the last query ends at the last key" : "") +
                    (problem.attention_mask != PairTensor::none ? "; 0 where the attention mask is false" : ""));
}

void bind_exponent_terms(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_exponent_words(problem, bindings);
  bindings->conditions["pair_tensors"] = problem.has_pair_tensors();
  bindings->conditions["exponent_terms"] = problem.alibi || problem.has_pair_tensors();
}

void bind_terms_of_pair(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool pairs = problem.has_pair_tensors(), alibi = problem.alibi;
  bindings->set("slope_of_terms", alibi ? "slope, " : "");
  bindings->set("head_of_terms", pairs ? "head" : "/*head*/");
  bindings->set("slope_of_head", alibi ? ", float slope" : "");
  bindings->set(
      "members_of_terms",
      std::string(alibi ? "slope(slope), from_diagonal(static_cast<float>(key - alibi_diagonal(args, sequence, query)))"
                        : "") +
          (alibi && pairs ? ", " : "") +
          (pairs ? "args(args), sequence(sequence), head(head), query(query), key(key)" : ""));
  bindings->set("gain_of_terms",
                std::string(pairs ? "pair_gain(args, sequence, head, query + queries, key + keys)" : "") +
                    (alibi ? " - slope * abs_f32(from_diagonal + static_cast<float>(keys - queries))" : ""));
}

void bind_score_gradient(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_exponent_terms(problem, bindings);
  bindings->conditions["score_slope"] = problem.softcap != 0;
}

void bind_row_end(const AttentionProblem& problem, bool of_part, TemplateBindings* bindings) {
  bindings->conditions["sink"] = problem.sink && !of_part;
}

void bind_dropout(const AttentionProblem& problem, TemplateBindings* bindings) {
  bindings->conditions["dropout"] = problem.dropout != 0;
  bindings->conditions["dropout_shared"] = false;
}

std::string dv_scale(const AttentionProblem& problem) { return problem.dropout != 0 ? "args.dropout_scale" : "1.0f"; }

std::string per_share(const AttentionProblem& problem) { return problem.dropout != 0 ? " * args.dropout_scale" : ""; }

void bind_dropout_share(const AttentionProblem& problem, bool of_part, TemplateBindings* bindings) {
  bindings->set("per_share", of_part ? "" : per_share(problem));
}

void bind_key_blocks(bool of_part, bool at_diagonals, TemplateBindings* bindings) {
  bindings->conditions["diagonal_blocks"] = at_diagonals;
  bindings->conditions["whole_blocks"] = false;
  bindings->set("first_blocks", of_part ? "of_part" : "fixed");
}

}  // namespace attune
