#include "generator/problem/dispatch_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/problem/mask_geometry.h"
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
// The sides of a window are bucketed as lengths are, from the same diagonal.
void set_window_class(const AttentionProblem& problem, AttentionProblem* representative) {
  const std::int64_t first = problem.first_offset, last = problem.mask_offset, diagonal = window_diagonal(problem);
  const std::int64_t moved = bottom_right_offset(*representative) - bottom_right_offset(problem);
  const std::int64_t of_class = std::clamp(diagonal + moved, 1 - representative->seq_q, representative->seq_kv - 1);
  representative->mask = MaskKind::none;
  representative->mask_offset = representative->first_offset = 0;
  hide_outside(of_class + 1 - bucket_end(diagonal - first + 1),
               last == kOpenDiagonal ? kOpenDiagonal : of_class + bucket_end(last - diagonal + 1) - 1, representative);
}
}  // namespace

std::string kernel_class(const AttentionProblem& problem, const KernelConfig& config) {
  std::string text = fmt::format("{} {} d{}{}", to_string(problem.pass), to_string(problem.dtype), problem.head_dim,
                                 class_words(problem.mask));
  if (problem.alignment != 16) text += fmt::format(" align{}", problem.alignment);
  if (config.pack_gqa) text += fmt::format(" group{}", problem.heads_q / problem.heads_kv);
  return text + " " + canonical_text(config);
}

DispatchClass dispatch_class(const AttentionProblem& problem) {
  AttentionProblem representative = problem;
  const bool whole = problem.seq_q % kWholeLength == 0 && problem.seq_kv % kWholeLength == 0;
  representative.seq_q = bucket_end(problem.seq_q);
  representative.seq_kv = bucket_end(problem.seq_kv);
  if (!whole) {
    representative.seq_q = ragged(representative.seq_q);
    representative.seq_kv = ragged(representative.seq_kv);
  }
  representative.softmax_scale = default_softmax_scale(problem.head_dim);
  switch (problem.mask) {
    case MaskKind::none:
      break;
    case MaskKind::causal: {
      // An offset of its own (it may grow with each token) counts as the nearer of bottom right and top left.
      const std::int64_t offset = problem.mask_offset;
      const bool top_left = std::abs(offset) < std::abs(offset - bottom_right_offset(problem));
      representative.mask_offset = top_left ? 0 : bottom_right_offset(representative);
      break;
    }
    case MaskKind::window:
      set_window_class(problem, &representative);
      break;
  }
  // What its class makes of a window, such as a causal mask, may have another class.
  if (hides_first_keys(problem.mask) && !(representative == problem)) return dispatch_class(representative);
  return {representative};
}

std::string canonical_text(const DispatchClass& key) { return canonical_text(key.representative); }

}  // namespace attune
