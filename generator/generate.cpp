#include "generator/generate.h"

#include <fmt/format.h>

#include "generator/error.h"
#include "generator/families/backward_sm80/plan.h"
#include "generator/families/forward_sm80/plan.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/oracle/oracle_kernels.h"
#include "generator/problem/dispatch_class.h"

namespace attune {
namespace {
constexpr const char* kReferenceTemplate = "kernels/reference_forward";
constexpr const char* kReferenceEntry = "attune_reference_forward";
constexpr int kReferenceThreads = 128;

ArgumentLayout reference_arguments() {
  Arguments fields;
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v});
  append_strides(&fields, {Operand::q, Operand::k, Operand::v});
  append(&fields, {Workspace{kOFp64}, Workspace{kLseFp64}, Workspace{kWeightFp64}, Scalar::heads_q, Scalar::group_size,
                   Scalar::seq_q, Scalar::seq_kv, Scalar::mask_offset, Scalar::softmax_scale});
  return ArgumentLayout::of(std::move(fields));
}

std::string reference_class(const AttentionProblem& problem) {
  return fmt::format("reference {} {} d{}{}", to_string(problem.pass), to_string(problem.dtype), problem.head_dim,
                     class_words(problem.mask));
}

KernelPlan plan_of(const AttentionProblem& problem) {
  KernelPlan plan;
  plan.problem = problem;
  plan.flops = count_flops(problem);
  plan.bytes = count_bytes(problem);
  return plan;
}
}  // namespace

KernelPlan generate(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                    const TemplateSet& templates, KernelTarget target) {
  validate(problem);
  const std::vector<std::string> reasons = infeasibility(problem, config, device);
  if (!reasons.empty()) {
    std::string message = fmt::format("config '{}' does not fit '{}' on {}", canonical_text(config),
                                      canonical_text(problem), device.name);
    for (const std::string& reason : reasons) message += (&reason == &reasons.front() ? ": " : "; ") + reason;
    throw Error(ErrorCode::infeasible_config, message);
  }
  KernelPlan plan = plan_of(problem);
  plan.config = config;
  plan.kernel_class = kernel_class(problem, config);
  if (problem.pass == Pass::backward) {
    describe_backward_sm80(problem, config, device, templates, target, &plan);
    return plan;
  }
  switch (config.family) {
    case KernelFamily::sm80:
      plan.launches.push_back(forward_sm80_launch(problem, config, device, templates, target));
      break;
    case KernelFamily::sm90:
      plan.launches.push_back(forward_sm90_launch(problem, config, device, templates, target));
      describe_forward_sm90_workspace(config, &plan);
      break;
  }
  plan.ordered_outputs = {Operand::o, Operand::lse};
  return plan;
}

std::size_t most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device) {
  if (problem.pass == Pass::backward) return backward_sm80_most_workspace_bytes(problem);
  const bool may_be_sm90 = device.compute_major == 9 && problem.alignment >= 16;
  return may_be_sm90 ? kForwardSm90WorkspaceBytes : 0;  // kernels of sm80 need none
}

std::string templates_hash(Pass pass, KernelFamily family, const TemplateSet& templates, KernelTarget target) {
  if (pass == Pass::backward) return backward_sm80_templates_hash(templates, target);
  switch (family) {
    case KernelFamily::sm80:
      return forward_sm80_templates_hash(templates, target);
    case KernelFamily::sm90:
      return forward_sm90_templates_hash(templates, target);
  }
  return {};
}

KernelPlan generate_reference(const AttentionProblem& problem, const DeviceSpec& device, const TemplateSet& templates,
                              KernelTarget target) {
  validate(problem);
  const ArgumentLayout arguments = reference_arguments();
  // Scores of as many keys as there are threads, as much again for reductions, and the query.
  const std::size_t shared_bytes = sizeof(double) * static_cast<std::size_t>(2 * kReferenceThreads + problem.head_dim);

  TemplateBindings bindings;
  bindings.set("kernel_class", reference_class(problem));
  bindings.set("templates_hash", templates.hash_of(kReferenceTemplate, {{"target", std::string(to_string(target))}}));
  bindings.set("entry", kReferenceEntry);
  bindings.set("target", std::string(to_string(target)));
  bindings.set("dtype", problem.dtype == DataType::bf16 ? "bf16" : "f16");
  bindings.set("mask", std::string(to_string(problem.mask)));
  bindings.set("head_dim", problem.head_dim);
  bindings.set("threads", kReferenceThreads);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));
  bindings.set("argument_bytes", static_cast<std::int64_t>(arguments.bytes));
  bindings.set("argument_fields", arguments.declarations());
  RenderedText rendered = render(templates, kReferenceTemplate, bindings);

  KernelLaunch launch;
  launch.source = std::move(rendered.text);
  launch.lines = std::move(rendered.lines);
  launch.entry = kReferenceEntry;
  launch.arch = arch_name(device);
  launch.target = target;
  launch.threads = kReferenceThreads;
  launch.shared_bytes = shared_bytes;
  launch.rows_per_tile = 1;
  launch.arguments = arguments;

  KernelPlan plan = plan_of(problem);
  plan.kernel_class = reference_class(problem);
  plan.launches.push_back(std::move(launch));
  plan.ordered_outputs = {Operand::o, Operand::lse};
  return plan;
}

}  // namespace attune
