#include "generator/families/shared/copied_pairs.h"

#include <utility>

#include "generator/plan/tensor_strides.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kCopyThreads = 256, kRowsAtOnce = kCopyThreads / 32, kCopyCtasPerSm = 8;

struct Copy {
  Operand operand;
  Buffer buffer;
  Scalar batch, heads, rows;
  std::string_view entry;
};
constexpr Copy kCopies[] = {
    {Operand::bias,
     {"bias_copy", "u32*"},
     Scalar::bias_batch,
     Scalar::bias_heads,
     Scalar::bias_rows,
     "attune_copy_bias"},
    {Operand::attention_mask,
     {"attention_mask_copy", "u32*"},
     Scalar::attention_mask_batch,
     Scalar::attention_mask_heads,
     Scalar::attention_mask_rows,
     "attune_copy_attention_mask"},
};

std::vector<Copy> copies_of(const AttentionProblem& problem) {
  std::vector<Copy> copies;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand) || !has_unaligned_rows(problem, operand)) continue;
    for (const Copy& copy : kCopies)
      if (copy.operand == operand) copies.push_back(copy);
  }
  return copies;
}

WorkspaceBuffer buffer_of(const Copy& copy) { return {.buffer = copy.buffer, .copied = copy.operand}; }

KernelLaunch launch_of(const AttentionProblem& problem, const Copy& copy, const DeviceSpec& device,
                       TemplateBindings* bindings) {
  KernelLaunch launch;
  launch.entry = copy.entry;
  launch.threads = kCopyThreads;
  launch.rows_per_tile = kRowsAtOnce;
  launch.max_ctas = kCopyCtasPerSm * device.sm_count;
  Arguments fields = {Workspace{copy.buffer}};
  append_pointers(&fields, {copy.operand});
  append_strides(&fields, {copy.operand});
  append(&fields, {pair_keys_of(problem), copy.batch, copy.heads, copy.rows});
  launch.arguments = ArgumentLayout::of(std::move(fields));
  bindings->set("pair_keys", to_string(pair_keys_of(problem)));
  bindings->set("operand", std::string(identifier(copy.operand)));
  bindings->set("element_bytes", size_of(operand_shape(problem, copy.operand).element));
  bindings->set("threads", kCopyThreads);
  return launch;
}

}  // namespace

bool has_unaligned_rows(const AttentionProblem& problem, Operand operand) {
  return !fits_tensor_map(0, operand_shape(problem, operand), packed_strides(problem, operand));
}

bool has_unaligned_pairs(const AttentionProblem& problem) { return !copies_of(problem).empty(); }

void check_copied_pairs(const AttentionProblem& problem, const KernelConfig& config,
                        std::vector<std::string>* reasons) {
  if (!config.copied_pairs) return;
  if (config.pair_stages == 0)
    reasons->push_back("copied-pairs: only tiles are copied by TMA; take pst1 or more, or leave the word out");
  if (!has_unaligned_pairs(problem))
    reasons->push_back(
        "copied-pairs: the problem has no tensor of pairs whose rows are no multiples of 16 bytes; leave the word out");
}

void add_copied_pairs(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, KernelPlan* plan) {
  if (!plan->config.copied_pairs) return;
  std::vector<KernelLaunch> launches;
  for (const Copy& copy : copies_of(plan->problem)) {
    TemplateBindings bindings;
    KernelLaunch launch = launch_of(plan->problem, copy, device, &bindings);
    render_launch("copy_pairs", plan->kernel_class, device, templates, target, std::move(bindings), &launch);
    launches.push_back(std::move(launch));
    plan->copies.push_back({copy.operand, copy.buffer});
    plan->buffers.push_back(buffer_of(copy));
  }
  plan->launches.insert(plan->launches.begin(), launches.begin(), launches.end());
}

void add_most_copied_pairs(KernelPlan* plan) {
  for (const Copy& copy : copies_of(plan->problem)) plan->buffers.push_back(buffer_of(copy));
}

std::vector<bool> copied_pairs_choices(const AttentionProblem& problem, int pair_stages) {
  if (pair_stages == 0 || !has_unaligned_pairs(problem)) return {false};
  return {false, true};
}

double copied_pairs_microseconds(const AttentionProblem& problem, const KernelConfig& config,
                                 const DeviceSpec& device) {
  if (!config.copied_pairs) return 0;
  constexpr double kLaunchMicroseconds = 3, kMemoryRate = 0.5;  // not measured yet
  double microseconds = 0;
  for (const Copy& copy : copies_of(problem)) {
    const auto bytes = static_cast<double>(operand_shape(problem, copy.operand).bytes());
    microseconds += kLaunchMicroseconds + 2 * bytes / (kMemoryRate * device.memory_gbps * 1e3);
  }
  return microseconds;
}

}  // namespace attune
