#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/config/cost_estimate.h"
#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/device/matrix_rate.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// What is asked of a family: a problem on a device.
struct Question {
  const AttentionProblem& problem;
  const DeviceSpec& device;
};
using Reasons = std::vector<std::string>;

/// A config that was made for another problem, or by another version, as near as it fits this one.
struct Adaptation {
  KernelConfig config;
  std::vector<std::string> changes;  ///< for people: "with rescale8, as this dtype wants it"; none: it is the same
};

/// A tile that FlashAttention-2 (mma.sync) or FlashAttention-3 (wgmma) ships.
struct PublishedTile {
  int max_head_dim;  ///< the largest that it serves
  int block_q, block_kv;
  int warps;  ///< 0: of a family whose CTAs have warpgroups
};

/// Kernels of one pass that are written for the same instructions: everything that one may ask of them, as functions.
/// The rest of the library knows families by this table alone.
struct KernelFamily {
  std::string_view name;  ///< "forward_sm80"
  FamilyWord word;        ///< that its configs begin with
  Pass pass;
  unsigned set;  ///< its bit in ConfigField::families
  MatrixInstruction matrix_instruction;

  /// The fields of problem_fields() with the role `term` that its kernels compute, by their keys.
  std::span<const std::string_view> terms;
  /// Whether any config of it may serve a problem of these; with the reason, as infeasibility() says it, where none
  /// does.
  bool (*supports)(const Question&, Reasons*);
  /// infeasibility() of a config whose fields are well formed and its own, on a device that it supports.
  void (*check)(const Question&, const KernelConfig&, Reasons*);
  /// Adds every combination of the tunable fields; of the reduced extent those that are in it.
  void (*enumerate)(const Question&, SpaceExtent, std::vector<KernelConfig>*);
  /// The best config that is known without timing any; nothing where another family's is known to win. Throws
  /// Error(unsupported) where nothing fits.
  std::optional<KernelConfig> (*default_config)(const Question&);
  /// The config as exact as the problem's rows and dtype want it, and without what its sizes leave no room for. Other
  /// fields stay as they are, so that the result may not fit. A config of the family, made for whatever problem.
  Adaptation (*adapt)(const Question&, const KernelConfig&);
  CostEstimate (*estimate)(const Question&, const KernelConfig&);
  /// Adds the launches, the workspace and the ordered outputs of a feasible config.
  void (*describe)(const Question&, const KernelConfig&, const TemplateSet&, KernelTarget, KernelPlan*);
  /// The most bytes that any plan of the problem takes, whatever the lengths of a forward.
  std::size_t (*most_workspace)(const Question&);

  /// The hash of its templates that version 0.1 ended with and stored with its rows. Such rows stay valid where what is
  /// generated now has the same machine code; empty once none has.
  std::string_view last_templates_of_0_1;

  std::span<const PublishedTile> published;  ///< by rising head dim
  /// Bytes of spill stores and loads of a thread with which a kernel is still timed.
  int spill_allowance_bytes;
};

/// All families, in the order in which their configs are listed.
std::span<const KernelFamily> kernel_families();

/// Whether any config of a family may serve: it computes the problem's terms, and supports the rest. Adds the reasons
/// where none does.
bool serves(const KernelFamily& family, const Question& question, Reasons* reasons);

/// The family whose configs begin with a word, of a pass; null if it has none.
const KernelFamily* find_family(Pass pass, FamilyWord word);
/// The same of a config of the problem that is feasible; throws Error(infeasible_config) if there is none.
const KernelFamily& family_of(const AttentionProblem& problem, const KernelConfig& config);

/// The family of a pass that serves most GPUs: its instructions are the oldest.
const KernelFamily& general_family(Pass pass);

/// The sentence that refuses a config of a family that the pass does not have.
std::string no_such_family(Pass pass, FamilyWord word);

/// ConfigField::families of all that begin with a word.
unsigned families_of(FamilyWord word);

std::vector<std::string_view> family_words();
std::optional<FamilyWord> parse_family_word(std::string_view text);

}  // namespace attune
