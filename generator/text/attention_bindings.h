#pragma once

#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// What the elements of the tensors are: `dtype`, as PTX spells it, and `element_bytes`.
void bind_elements(const AttentionProblem& problem, TemplateBindings* bindings);

/// Columns of a row of Q and K, and of V and O: `head_dim_qk` and `head_dim_v`.
void bind_head_dims(const AttentionProblem& problem, TemplateBindings* bindings);

/// For a kernel that works on all rows that are stored, whosever they are. Of packed sequences it finds them as
/// bind_sequence() says.
void bind_stored_rows(const AttentionProblem& problem, TemplateBindings* bindings);

/// Names the partial of templates/attention/ by which a kernel knows whose rows it works on.
void bind_sequence(const AttentionProblem& problem, TemplateBindings* bindings);

/// What kernels say of sequences that may have fewer rows: `sequence_rows`.
void bind_sequence_words(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_sequence(), and the partial that says which keys these rows see, and whether sequences may have fewer rows than
/// tensors.
void bind_mask(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_mask(), and what a kernel with a loop over blocks of scores needs too: what happens to a score, and whether the
/// first blocks of the loop need a predicate.
void bind_attention(const AttentionProblem& problem, TemplateBindings* bindings);

/// What attention/head_of_batch names: the order of heads in batch entries, where an operand repeats along these. It is
/// asked of a call's strides, since problems of a kernel class have tensors of pairs of any dimensions.
void bind_head_of_batch(const AttentionProblem& problem, TemplateBindings* bindings);

/// What a row's largest score is a multiple of, for LSE and for the exponentials of softmax, which are powers of two.
void bind_score_unit(const AttentionProblem& problem, TemplateBindings* bindings);

/// What softmax takes the exponentials of a changed score times, in words: the scale or the softcap.
void bind_unit(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_unit(), and whether a kernel changes its scores by a softcap.
void bind_score_words(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_score_words(), and what a forward kernel's attention/score_terms does: what it adds and what it hides.
void bind_score_terms(const AttentionProblem& problem, bool pair_tiles, TemplateBindings* bindings);

/// bind_score_words(), and what is said of, and read for, what a kernel of gradients adds to the exponents of P.
void bind_exponent_words(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_exponent_words(), and whether it adds anything.
void bind_exponent_terms(const AttentionProblem& problem, TemplateBindings* bindings);

/// What attention/exponent_terms names, of kernels that ask it for one pair after the other.
void bind_terms_of_pair(const AttentionProblem& problem, TemplateBindings* bindings);

/// bind_exponent_terms(), and what a kernel of gradients makes of a score's change: whether dS is P times its
/// derivative.
void bind_score_gradient(const AttentionProblem& problem, TemplateBindings* bindings);

/// Whether a sink counts when rows end; not of a kernel that sees a part of their keys.
void bind_row_end(const AttentionProblem& problem, bool of_part, TemplateBindings* bindings);

/// What a kernel that walks over blocks of keys needs too: whether it walks over all blocks of a tile, or over a part,
/// and whether blocks with keys beyond the diagonals of ALiBi are others.
void bind_key_blocks(bool of_part, bool at_diagonals, TemplateBindings* bindings);

/// Whether elements of P are dropped.
void bind_dropout(const AttentionProblem& problem, TemplateBindings* bindings);
/// By what a kernel multiplies the sums of dV, where it writes dV itself.
std::string dv_scale(const AttentionProblem& problem);
/// A factor that divides by the share that dropout keeps; empty without dropout.
std::string per_share(const AttentionProblem& problem);
/// What is behind what a kernel divides rows by: of_part: the whole rows will be, by another kernel.
void bind_dropout_share(const AttentionProblem& problem, bool of_part, TemplateBindings* bindings);

}  // namespace attune
