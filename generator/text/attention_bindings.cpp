#include "generator/text/attention_bindings.h"

#include <string>

#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"

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

void bind_stored_rows(TemplateBindings* bindings) { bindings->set("sequence", "dense"); }

void bind_sequence(const AttentionProblem& problem, TemplateBindings* bindings) {
  bindings->set("sequence", problem.has_used_lengths() ? "used" : "dense");
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

void bind_score_unit(const AttentionProblem& problem, TemplateBindings* bindings) {
  constexpr const char* kPowersOfTwo = "0.693147180559945309f";
  bindings->set("score_unit", problem.alibi          ? kPowersOfTwo
                              : problem.softcap != 0 ? "args.softcap"
                                                     : "args.softmax_scale");
  bindings->set("exponent_scale", problem.alibi ? "1.0f" : "args.softmax_scale_log2");
}

void bind_unit(const AttentionProblem& problem, TemplateBindings* bindings) {
  const bool powers_of_two = problem.alibi && problem.pass == Pass::forward;
  bindings->set("unit", powers_of_two ? "ln 2" : problem.softcap != 0 ? "softcap" : "scale");
}

void bind_score_words(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_unit(problem, bindings);
  bindings->conditions["capped"] = problem.softcap != 0;
  bindings->conditions["alibi"] = problem.alibi;
}

void bind_score_gradient(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_score_words(problem, bindings);
  bindings->conditions["score_slope"] = problem.softcap != 0;
}

void bind_row_end(const AttentionProblem& problem, bool of_part, TemplateBindings* bindings) {
  bindings->conditions["sink"] = problem.sink && !of_part;
}

void bind_key_blocks(bool of_part, bool at_diagonals, TemplateBindings* bindings) {
  bindings->conditions["diagonal_blocks"] = at_diagonals;
  bindings->conditions["whole_blocks"] = false;
  bindings->set("first_blocks", of_part ? "of_part" : "fixed");
}

}  // namespace attune
