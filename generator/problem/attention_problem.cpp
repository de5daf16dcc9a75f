#include "generator/problem/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/error.h"
#include "generator/plan/launch_rules.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/operand_shape.h"
#include "generator/problem/problem_fields.h"
#include "generator/problem/window.h"

namespace attune {
namespace {
using launch_rules::kElementsLimit, launch_rules::kHeadsLimit, launch_rules::kLengthLimit, launch_rules::kLog2E;
constexpr int kMaxHeadDim = 256;

// Kernels compute query + offset in int32.
bool is_valid_offset(std::int64_t offset, std::int64_t seq_q) {
  return offset > -kLengthLimit && offset <= kLengthLimit - seq_q;
}

bool is_valid_length(std::int64_t length) { return length >= 1 && length < kLengthLimit; }

}  // namespace

float default_softmax_scale(int head_dim) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }

AttentionProblem make_problem(DataType dtype, std::int64_t batch, std::int64_t heads, std::int64_t seq, int head_dim,
                              MaskKind mask) {
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.batch = batch;
  problem.heads_q = problem.heads_kv = heads;
  problem.seq_q = problem.seq_kv = seq;
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.softmax_scale = default_softmax_scale(head_dim);
  return problem;
}

AttentionProblem forward_of(AttentionProblem problem) {
  problem.pass = Pass::forward;
  for (const ProblemField& field : problem_fields()) {
    if (field.backward_only) field.set(problem, field.standard(problem));
  }
  return problem;
}

void copy_mask(const AttentionProblem& from, AttentionProblem* to) {
  to->mask = from.mask;
  to->mask_offset = from.mask_offset;
  to->first_offset = from.first_offset;
}

void hide_outside(std::int64_t first, std::int64_t last, AttentionProblem* problem) {
  if (problem->mask == MaskKind::window) first = std::max(first, problem->first_offset);
  if (problem->mask != MaskKind::none) last = std::min(last, problem->mask_offset);
  // A side that hides nothing is open.
  const bool from_first_key = first <= -kOpenDiagonal || first <= offset_difference(1, problem->seq_q);
  if (last >= offset_difference(problem->seq_kv, 1)) last = kOpenDiagonal;
  problem->mask = !from_first_key ? MaskKind::window : last >= kOpenDiagonal ? MaskKind::none : MaskKind::causal;
  problem->first_offset = from_first_key ? 0 : first;
  problem->mask_offset = problem->mask == MaskKind::none ? 0 : last;
}

AttentionProblem simplest_mask(AttentionProblem problem) {
  const bool first = hides_first_keys(problem.mask);
  const bool is_open = first && problem.mask_offset == kOpenDiagonal;
  const bool judged =
      hides_pairs(problem.mask) && is_valid_length(problem.seq_q) && is_valid_length(problem.seq_kv) &&
      (is_open || is_valid_offset(problem.mask_offset, problem.seq_q)) &&
      (first ? is_valid_offset(problem.first_offset, problem.seq_q) && problem.first_offset <= problem.mask_offset
             : problem.first_offset == 0);
  if (judged) hide_outside(-kOpenDiagonal, kOpenDiagonal, &problem);
  const bool stays = problem.lengths == Lengths::used_top_left && hides_pairs(problem.mask);
  if (problem.has_used_lengths() && !stays) problem.lengths = Lengths::used;
  if (problem.max_seq_q == problem.seq_q) problem.max_seq_q = 0;
  if (problem.max_seq_kv == problem.seq_kv) problem.max_seq_kv = 0;
  return problem;
}

void apply_window(std::int64_t left, std::int64_t right, std::int64_t diagonal, AttentionProblem* problem) {
  // Beyond what any valid problem has, nothing is computed with.
  diagonal = std::clamp(diagonal, -kOpenDiagonal / 2, kOpenDiagonal / 2);
  left = std::min(left, kOpenDiagonal / 2 - 1);
  right = std::min(right, kOpenDiagonal / 2 - 1);
  hide_outside(left < 0 ? -kOpenDiagonal : diagonal - left, right < 0 ? kOpenDiagonal : diagonal + right, problem);
}

std::int64_t bottom_right_offset(const AttentionProblem& problem) {
  return offset_difference(problem.seq_kv, problem.seq_q);
}

void validate(const AttentionProblem& problem) {
  if (problem.head_dim < 8 || problem.head_dim > kMaxHeadDim || problem.head_dim % 8 != 0) {
    refuse(fmt::format("head dim {}: must be a multiple of 8 from 8 to {}; pad the last dimension with zeros",
                       problem.head_dim, kMaxHeadDim));
  }
  const struct {
    const char* name;
    std::int64_t value;
  } sizes[] = {{"batch", problem.batch},
               {"query heads", problem.heads_q},
               {"key/value heads", problem.heads_kv},
               {"query length", problem.seq_q},
               {"key length", problem.seq_kv}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) refuse(fmt::format("{} {}: must be at least 1", name, value));
  }
  for (const auto& [name, value] : {sizes[3], sizes[4]}) {
    if (value >= kLengthLimit) refuse(fmt::format("{} {}: must be below {}", name, value, kLengthLimit));
  }
  if (problem.heads_q % problem.heads_kv != 0) {
    refuse(
        fmt::format("{} query heads are not divisible by {} key/value heads; each key/value head serves the same "
                    "number of query heads",
                    problem.heads_q, problem.heads_kv));
  }
  if (problem.batch >= kHeadsLimit || problem.heads_q >= kHeadsLimit ||
      problem.batch * problem.heads_q >= kHeadsLimit) {
    refuse(fmt::format("batch {} times query heads {}: must be below {}; split the batch", problem.batch,
                       problem.heads_q, kHeadsLimit));
  }
  const std::int64_t longest = std::max(problem.seq_q, problem.seq_kv);
  if (problem.row_batch() * problem.heads_q >= kElementsLimit / (longest * problem.head_dim)) {
    refuse(fmt::format(
        "batch {} times {} query heads times length {} times head dim {} is too large: tensors must have fewer than "
        "{} elements; split the batch",
        problem.row_batch(), problem.heads_q, longest, problem.head_dim, kElementsLimit));
  }
  if (!problem.packed && problem.distribution != LengthDistribution::log_uniform) {
    refuse(fmt::format("lengths={} without packed: only packed sequences have a distribution of lengths; leave it out",
                       kLengthDistributionNames[static_cast<std::size_t>(problem.distribution)]));
  }
  for (const auto& [name, value] : {std::pair("queries", problem.max_seq_q), std::pair("keys", problem.max_seq_kv)}) {
    if (value != 0 && !problem.has_longest_sequence()) {
      refuse(
          fmt::format("most {} of a sequence {}: only packed sequences with a bias or an attention mask have it; leave "
                      "it out",
                      name, value));
    }
    if (value < 0 || value >= kLengthLimit) {
      refuse(fmt::format("most {} of a sequence {}: must be from 1 to {}, or 0 for all that are packed", name, value,
                         kLengthLimit - 1));
    }
  }
  for (const auto& [name, tensor] :
       {std::pair("bias", problem.bias), std::pair("attention mask", problem.attention_mask)}) {
    const PairDimensions has = dimensions_of(tensor);
    const std::int64_t planes = (has.batch ? problem.batch : 1) * (has.heads ? problem.heads_q : 1);
    const std::int64_t rows = has.queries ? problem.pair_queries() : 1;
    if (tensor != PairTensor::none && planes >= kElementsLimit / rows / problem.pair_keys() + 1) {
      refuse(
          fmt::format("{} of {} planes of {} times {} elements: it must have fewer than {} elements; split the batch",
                      name, planes, rows, problem.pair_keys(), kElementsLimit));
    }
  }
  if (problem.bias_fp32 && problem.bias == PairTensor::none)
    refuse("bias-fp32 without a bias: name the bias's dimensions, too, such as bias=bhqk, or leave the word out");
  if (problem.bias_gradient && (problem.bias == PairTensor::none || problem.pass == Pass::forward)) {
    refuse(
        "bias-gradient: only a backward problem with a bias has it; name the bias's dimensions, too, such as "
        "bias=bhqk, or leave the word out");
  }
  // Kernels multiply it by log2(e), in fp32.
  if (!std::isfinite(problem.softmax_scale * kLog2E) || problem.softmax_scale <= 0) {
    refuse(fmt::format("scale {}: must be positive and finite as a float, also times log2(e)", problem.softmax_scale));
  }
  const float softcap = problem.softcap, ratio = problem.softmax_scale / softcap;
  if (softcap != 0 && (!std::isfinite(softcap * kLog2E) || softcap < 0 || !std::isnormal(ratio))) {
    refuse(
        fmt::format("softcap {}: must be positive and finite as a float, also times log2(e), and scale {} divided by "
                    "it a float, too; or 0 for none",
                    softcap, problem.softmax_scale));
  }
  if (!(problem.dropout >= 0 && problem.dropout < 1))
    refuse(fmt::format("dropout {}: must be at least 0 and less than 1", problem.dropout));
  if (problem.dropout != 0 && problem.invariant) {
    refuse(
        "invariant with dropout: what is dropped hangs on the batch entry and the head, so that a row alone has other "
        "elements dropped than in a batch; leave one of the words out");
  }
  if (problem.alignment != 2 && problem.alignment != 16) {
    refuse(fmt::format("alignment {}: must be 16, or 2 for rows that start anywhere", problem.alignment));
  }
  if (problem.deterministic && problem.pass == Pass::forward) {
    refuse("deterministic: every forward kernel is, so only a backward problem takes the word; leave it out");
  }
  if (!hides_pairs(problem.mask) && problem.mask_offset != 0) {
    refuse(fmt::format("mask offset {} without a mask: must be 0, or ask for a causal mask", problem.mask_offset));
  }
  if (!hides_first_keys(problem.mask) && problem.first_offset != 0)
    refuse(fmt::format("first offset {} without a window: must be 0, or ask for a window", problem.first_offset));
  if (hides_first_keys(problem.mask) && problem.first_offset > problem.mask_offset) {
    refuse(fmt::format("a window from offset {} to {}: no query attends to any key", problem.first_offset,
                       problem.mask_offset));
  }
  if (hides_first_keys(problem.mask) && !is_valid_offset(problem.first_offset, problem.seq_q)) {
    refuse(fmt::format("a window from offset {}: must be above {} and at most {} for query length {}",
                       problem.first_offset, -kLengthLimit, kLengthLimit - problem.seq_q, problem.seq_q));
  }
  const bool is_open = hides_first_keys(problem.mask) && problem.mask_offset == kOpenDiagonal;
  if (!is_open && !is_valid_offset(problem.mask_offset, problem.seq_q)) {
    refuse(fmt::format("mask offset {}: must be above {} and at most {} for query length {}", problem.mask_offset,
                       -kLengthLimit, kLengthLimit - problem.seq_q, problem.seq_q));
  }
}

double count_flops(const AttentionProblem& problem) {
  // Columns of the products, 2 FLOP each: Q K^T and P V; backward Q K^T, dO V^T, dV, dQ and dK.
  const bool forward = problem.pass == Pass::forward;
  const int columns =
      forward ? problem.head_dim_qk() + problem.head_dim_v() : 3 * problem.head_dim_qk() + 2 * problem.head_dim_v();
  return 2.0 * columns * static_cast<double>(count_attended_pairs(problem)) *
         static_cast<double>(problem.batch * problem.heads_q);
}

double count_bytes(const AttentionProblem& problem) {
  double bytes = 0;
  for (const Operand operand : kOperands) {
    const Access access = facts_of(operand).access(problem);
    if (access == Access::none || access == Access::may_read) continue;  // the latter a call may leave out
    const OperandShape shape = operand_shape(problem, operand);
    bytes += static_cast<double>(shape.all_rows()) * static_cast<double>(shape.columns) * size_of(shape.element);
  }
  return bytes;
}

}  // namespace attune
