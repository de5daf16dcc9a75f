#pragma once

#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// Names the partials of templates/attention/ by which a kernel knows whose rows it works on and which keys they see.
void bind_mask(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_mask(), and what a kernel with a loop over blocks of scores needs too: what happens to a score, and whether the
/// first blocks of the loop need a predicate.
void bind_attention(const AttentionProblem& problem, TemplateBindings* bindings);

}  // namespace attune
