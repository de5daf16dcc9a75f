#pragma once

#include <vector>

#include "generator/device/device_spec.h"
#include "tests/kernels/forward_case.h"
#include "tests/kernels/pairwise.h"

namespace attune::tests {

/// below: some first queries see no key. window: a third of the keys before the diagonal and a fifth behind it; causal:
/// a quarter before it, none behind; narrow: a few, open on the right, and some last queries see no key.
enum class MaskChoice { none, bottom_right, top_left, below, window, window_causal, window_narrow };
inline constexpr int kMaskChoices = 7, kMaskChoicesOfLadder = 4;  ///< the ladder serves no window

/// None, one that many scores reach, and one that hardly any does.
inline constexpr float kSoftcaps[] = {0, 1, 30};

/// None, one that eight bits for an element give, and one that takes sixteen.
inline constexpr float kDropouts[] = {0, 0.3f, 0.01f};

/// As problems' texts have them: none, what a plane for each head and batch entry is, and others that repeat.
inline constexpr std::string_view kBiases[] = {"", " bias=bhqk", " bias=1hqk bias-fp32", " bias=b11k bias-fp32",
                                               " bias=11qk"};
inline constexpr std::string_view kAttentionMasks[] = {"", " attention-mask=b1qk", " attention-mask=b11k"};

/// packed: the rows of all batch entries lie in those of one, as sequences of random lengths, many of none.
enum class LengthChoice { whole, used, used_top_left, packed, packed_top_left };
inline constexpr int kLengthChoices = 5;

/// What the tables of all kernels vary of a problem.
struct ProblemChoice {
  bool fp16 = false;
  std::int64_t batch = 1, heads_kv = 1, group = 1, seq_q = 1, seq_kv = 1;
  int head_dim = 8;
  MaskChoice mask = MaskChoice::none;
  bool unaligned = false, bhsd = false;
  int softcap = 0, dropout = 0;  ///< of kSoftcaps and kDropouts
  bool alibi = false, sink = false;
  int bias = 0, attention_mask = 0;  ///< of kBiases and kAttentionMasks
  bool bias_gradient = false;        ///< of backward, where there is a bias
  LengthChoice lengths = LengthChoice::whole;
  Placement placement = Placement::packed;  ///< reversed rows count as unaligned: TMA cannot copy them
};
AttentionProblem problem_of(const ProblemChoice& choice);
/// Whether there are kernels for what a choice of fields asks together.
bool is_served(const AttentionProblem& problem);

/// The pairwise table over the problem's and the config's factors: lengths, head dims, heads, masks, softcaps, ALiBi,
/// biases, attention masks, sinks, dropout, used lengths, dtypes, layouts, placements, alignments; tiles, warps, stages
/// and every switch of the config, as far as the family has them.
struct CaseTable {
  std::vector<ForwardCase> cases;
  std::vector<std::string> impossible;  ///< pairs that no case shows
};

/// Cases of a kernel family feasible on `device`, each of at most `max_work` (padded queries * keys * head dim, over
/// all heads).
CaseTable pairwise_cases(const DeviceSpec& device, FamilyWord family, double max_work, std::uint32_t seed);

}  // namespace attune::tests
