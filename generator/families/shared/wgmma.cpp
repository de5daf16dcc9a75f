#include "generator/families/shared/wgmma.h"

#include <fmt/format.h>

#include "generator/families/family_word.h"

namespace attune {

int panel_columns(int head_dim) { return head_dim <= 16 ? 16 : head_dim <= 32 ? 32 : 64; }

int swizzle_mode(int panel_columns) { return panel_columns == 64 ? 1 : panel_columns == 32 ? 2 : 3; }

bool supports_wgmma(const Question& question, Reasons* reasons) {
  const auto& [problem, device] = question;
  const std::size_t before = reasons->size();
  if (device.compute_major != 9 || device.compute_minor != 0) {
    reasons->push_back(fmt::format("{} has compute capability {}.{}; family {} needs 9.0", device.name,
                                   device.compute_major, device.compute_minor, to_string(FamilyWord::sm90)));
  }
  if (problem.alignment < 16) {
    reasons->push_back(
        fmt::format("align{}: TMA copies rows that start at multiples of 16 bytes; family {} takes others",
                    problem.alignment, to_string(FamilyWord::sm80)));
  }
  return reasons->size() == before;
}

void check_clusters(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.cluster == 1 || !problem.has_used_lengths()) return;
  reasons->push_back(
      fmt::format("cluster{}: sequences of used lengths may end within its tiles; leave the word out", config.cluster));
}

bool leave_clusters(const AttentionProblem& problem, KernelConfig* config) {
  Reasons reasons;
  check_clusters(problem, *config, &reasons);
  if (!reasons.empty()) config->cluster = 1;
  return !reasons.empty();
}

}  // namespace attune
