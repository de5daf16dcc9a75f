#include "generator/families/invariance.h"

#include <fmt/format.h>

#include "generator/config/config_fields.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "generator/problem/problem_fields.h"

namespace attune {
namespace {

// Keys of a step that every head dim up to the limit has registers and shared memory for, on every GPU of the family.
struct InvariantTile {
  FamilyWord family;
  int most_head_dim, block_kv;
};
constexpr InvariantTile kTiles[] = {
    {FamilyWord::sm80, 128, 64},
    {FamilyWord::sm80, 256, 32},
    {FamilyWord::sm90, 128, 128},
    {FamilyWord::sm90, 256, 64},
};

// A config of the family whose fields that decide bits are the class's.
std::optional<KernelConfig> invariant_sums(const Question& question, const KernelFamily& family) {
  if (question.problem.pass == Pass::forward) return with_invariant_sums(question.problem, default_fields(family.word));
  return family.default_config({size_of_invariant_backward(question.problem), question.device});
}

}  // namespace

// Families stand in the order in which they came.
const KernelFamily* invariant_family(const Question& question) {
  const KernelFamily* newest = nullptr;
  Reasons reasons;
  for (const KernelFamily& family : kernel_families()) {
    if (family.pass == question.problem.pass && serves(family, question, &reasons)) newest = &family;
  }
  return newest;
}

bool adds_parts_of_keys(const AttentionProblem& problem, const KernelConfig& config) {
  return problem.pass == Pass::forward && problem.invariant && config.key_parts == 1;
}

KernelConfig with_invariant_sums(const AttentionProblem& problem, KernelConfig config) {
  for (const InvariantTile& tile : kTiles) {
    if (tile.family != config.family || problem.head_dim > tile.most_head_dim) continue;
    config.block_kv = tile.block_kv;
    break;
  }
  config.rescale_threshold = 0;  // where all rows of a warp are rescaled at once, each depends on the others
  config.promotion_blocks = 0;
  config.emulated_exponentials = 0;
  config.ascending_keys = false;
  return config;
}

AttentionProblem size_of_invariant_backward(const AttentionProblem& problem) {
  constexpr std::int64_t kBatch = 4, kHeads = 16, kLength = 4096;
  AttentionProblem size = kernel_fields(problem);
  size.invariant = false;
  size.deterministic = true;
  size.mask = MaskKind::none;
  size.batch = kBatch;
  size.heads_q = size.heads_kv = kHeads;
  size.seq_q = size.seq_kv = kLength;
  size.softmax_scale = default_softmax_scale(size.head_dim);
  return size;
}

void check_invariance(const Question& question, const KernelConfig& config, Reasons* reasons) {
  const AttentionProblem& problem = question.problem;
  if (!problem.invariant) {
    if (config.key_parts == kFixedParts)
      reasons->push_back("parts=fixed: only an invariant problem has such parts; take parts=fill");
    return;
  }
  if (const KernelFamily* family = invariant_family(question); family != nullptr && family->word != config.family) {
    reasons->push_back(fmt::format("{}: bits of an invariant problem are those of family {} here, whatever its size",
                                   to_string(config.family), to_string(family->word)));
    return;
  }
  const KernelFamily& family = *find_family(problem.pass, config.family);
  const std::optional<KernelConfig> sums = invariant_sums(question, family);
  for (const ConfigField& field : config_fields()) {
    if (!sums || (field.decides_bits & family.set) == 0 || field.get(config) == field.get(*sums)) continue;
    const auto is_said = [&](const KernelConfig& of) { return field.always || !field.is_default(of); };
    reasons->push_back(
        fmt::format("{}: it decides bits, and an invariant problem of this head dim has {}, whatever its size",
                    is_said(config) ? field.text(config) : fmt::format("no {}", field.word),
                    is_said(*sums) ? field.text(*sums) : "its default"));
  }
  if (config.key_parts != 1 && config.key_parts != kFixedParts)
    reasons->push_back(
        "parts: an invariant problem's keys are split at the same keys whatever its size; take parts=fixed");
}

}  // namespace attune
