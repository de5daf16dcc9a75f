#include "generator/problem/dispatch_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/problem/mask_geometry.h"
#include "generator/problem/problem_fields.h"
#include "generator/problem/window.h"

namespace attune {
namespace {
constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - 1280;  // the longest valid multiple of kWholeLength

// The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not below `length`.
std::int64_t bucket_end(std::int64_t length) {
  const std::int64_t power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length)));
  const std::int64_t three_quarters = power / 4 * 3;
  return std::min(power >= 4 && length <= three_quarters ? three_quarters : power, kMaxLength);
}

// Keeps a class of ragged lengths apart from that of whole ones.
std::int64_t ragged(std::int64_t length) { return length % kWholeLength == 0 ? length - 1 : length; }

// The sides of a window are bucketed as lengths are, from the same diagonal. It stays a window: a bucket so wide that
// it would hide nothing hides the first key from the last query, as the kernels of the class may.
void set_window_class(const AttentionProblem& problem, AttentionProblem* representative) {
  const std::int64_t first = problem.first_offset, last = problem.mask_offset, diagonal = window_diagonal(problem);
  const std::int64_t moved = bottom_right_offset(*representative) - bottom_right_offset(problem);
  const std::int64_t of_class = std::clamp(diagonal + moved, 1 - representative->seq_q, representative->seq_kv - 1);
  const std::int64_t least = 2 - representative->seq_q;
  const std::int64_t first_of_class = std::max(of_class + 1 - bucket_end(diagonal - first + 1), least);
  const bool is_open = last == kOpenDiagonal;
  representative->mask = MaskKind::none;
  representative->mask_offset = representative->first_offset = 0;
  hide_outside(first_of_class,
               is_open ? kOpenDiagonal : std::max(of_class + bucket_end(last - diagonal + 1) - 1, first_of_class),
               representative);
}

AttentionProblem representative_of(const AttentionProblem& problem) {
  AttentionProblem representative = problem;
  const bool whole = problem.seq_q % kWholeLength == 0 && problem.seq_kv % kWholeLength == 0;
  representative.seq_q = bucket_end(problem.seq_q);
  representative.seq_kv = bucket_end(problem.seq_kv);
  if (!whole) {
    representative.seq_q = ragged(representative.seq_q);
    representative.seq_kv = ragged(representative.seq_kv);
  }
  for (std::int64_t* longest : {&representative.max_seq_q, &representative.max_seq_kv}) {
    if (*longest == 0) continue;
    const bool whole_rows = *longest % kWholeLength == 0;
    *longest = bucket_end(*longest);
    if (!whole_rows) *longest = ragged(*longest);
  }
  reset_arguments(&representative);
  switch (problem.mask) {
    case MaskKind::none:
      break;
    case MaskKind::causal: {
      // An offset of its own (it may grow with each token) counts as the nearer of bottom right and top left.
      const std::int64_t offset = problem.mask_offset;
      const bool top_left = std::abs(offset) < std::abs(offset - bottom_right_offset(problem));
      // It hides a pair, as its kernels may.
      representative.mask_offset =
          std::min(top_left ? 0 : bottom_right_offset(representative), representative.seq_kv - 2);
      break;
    }
    case MaskKind::window:
      set_window_class(problem, &representative);
      break;
  }
  // The sides may be counted from another diagonal now, and so have other buckets.
  if (hides_first_keys(problem.mask) && !(representative == problem))
    representative = representative_of(representative);
  return representative;
}
}  // namespace

KernelClass::KernelClass(const AttentionProblem& problem)
    : fields(kernel_fields(problem)), group(problem.heads_q / problem.heads_kv) {}

std::string kernel_class(const AttentionProblem& problem, const KernelConfig& config) {
  std::string text = kernel_class_words(problem);
  if (config.pack_gqa) text += fmt::format(" group{}", KernelClass(problem).group);
  return text + " " + canonical_text(config);
}

bool same_source(const AttentionProblem& a, const AttentionProblem& b, const KernelConfig& config) {
  KernelClass of_a(a);
  const KernelClass of_b(b);
  if (!config.pack_gqa) of_a.group = of_b.group;
  return of_a == of_b;
}

DispatchClass dispatch_class(const AttentionProblem& problem) {
  return {KernelClass(problem), representative_of(problem)};
}

std::string canonical_text(const DispatchClass& key) { return canonical_text(key.representative); }

std::size_t DispatchClassHash::operator()(const DispatchClass& key) const noexcept {
  return AttentionProblemHash()(key.representative);  // problems of one class have one kernel class
}

}  // namespace attune
