#include "generator/text/attention_bindings.h"

#include <string>

#include "generator/problem/mask_geometry.h"

namespace attune {

void bind_sequence(const AttentionProblem& /*problem*/, TemplateBindings* bindings) {
  bindings->set("sequence", "dense");
}

void bind_mask(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_sequence(problem, bindings);
  bindings->set("mask", std::string(to_string(problem.mask)));
}

void bind_attention(const AttentionProblem& problem, TemplateBindings* bindings) {
  bind_mask(problem, bindings);
  bindings->set("score", "plain");
  bindings->conditions["masked_begin"] = hides_first_keys(problem.mask);
}

void bind_key_blocks(bool of_part, TemplateBindings* bindings) {
  bindings->set("first_blocks", of_part ? "of_part" : "fixed");
}

}  // namespace attune
