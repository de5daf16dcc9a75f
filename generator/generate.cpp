#include "generator/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "generator/config/config_fields.h"
#include "generator/config/cost_estimate.h"
#include "generator/error.h"
#include "generator/families/invariance.h"
#include "generator/families/kernel_family.h"
#include "generator/oracle/oracle_kernels.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/problem_fields.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {
constexpr int kReferenceThreads = 128;

ArgumentLayout reference_arguments(const AttentionProblem& problem) {
  Arguments fields;
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v});
  append_strides(&fields, {Operand::q, Operand::k, Operand::v});
  append(&fields, {Workspace{kOFp64}, Workspace{kLseFp64}, Workspace{kWeightFp64}, Scalar::heads_q, Scalar::group_size,
                   Scalar::seq_q, Scalar::seq_kv});
  append_lengths(&fields, problem);
  if (problem.packed) fields.push_back(Scalar::batch);
  append_mask(&fields, problem);
  append_oracle_score(&fields, problem);
  if (problem.sink) fields.push_back(Pointer{Operand::sinks});
  return ArgumentLayout::of(std::move(fields));
}

std::string reference_class(AttentionProblem problem) {
  problem.alignment = 16;  // which it does not ask for
  return "reference " + kernel_class_words(problem);
}

KernelPlan plan_of(const AttentionProblem& problem) {
  KernelPlan plan;
  plan.problem = problem;
  plan.flops = count_flops(problem);
  plan.bytes = count_bytes(problem);
  return plan;
}

// A family's own check takes a well-formed config for granted.
void check_for_problem(const KernelFamily& family, const Question& question, const KernelConfig& config,
                       Reasons* reasons) {
  serves(family, question, reasons);
  if (reasons->empty()) check_invariance(question, config, reasons);
  if (reasons->empty()) family.check(question, config, reasons);
}
}  // namespace

std::vector<std::string> infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                       const DeviceSpec& device) {
  const KernelFamily* family = find_family(problem.pass, config.family);
  if (family == nullptr) return {no_such_family(problem.pass, config.family)};
  Reasons reasons;
  check_foreign_fields(config, family->set, family->name, &reasons);
  check_well_formed(config, family->set, &reasons);
  check_for_problem(*family, {problem, device}, config, &reasons);
  return reasons;
}

std::vector<std::string> infeasibility_of_prepared(const AttentionProblem& problem, const KernelConfig& config,
                                                   const DeviceSpec& device) {
  Reasons reasons;
  check_for_problem(family_of(problem, config), {problem, device}, config, &reasons);
  return reasons;
}

std::optional<Adaptation> adapted(const AttentionProblem& problem, const KernelConfig& config,
                                  const DeviceSpec& device) {
  const KernelFamily* family = find_family(problem.pass, config.family);
  if (family == nullptr) return std::nullopt;
  Adaptation adaptation = family->adapt({problem, device}, config);
  if (!infeasibility(problem, adaptation.config, device).empty()) return std::nullopt;
  return adaptation;
}

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
  family_of(problem, config).describe({problem, device}, config, templates, target, &plan);
  return plan;
}

CostEstimate estimate_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device) {
  const AttentionProblem rated = with_equal_lengths(problem);
  return family_of(problem, config).estimate({rated, device}, config);
}

KernelConfig default_config(const AttentionProblem& problem, const DeviceSpec& device) {
  validate(problem);
  const Question question{problem, device};
  const AttentionProblem rated = with_equal_lengths(problem);
  std::vector<KernelConfig> choices;
  Reasons reasons;
  for (const KernelFamily& family : kernel_families()) {
    if (family.pass != problem.pass || !serves(family, question, &reasons)) continue;
    if (problem.invariant && &family != invariant_family(question)) continue;
    const auto choice = family.default_config({rated, device});
    if (choice) choices.push_back(problem.packed ? family.adapt(question, *choice).config : *choice);
  }
  if (choices.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("no kernel serves '{}' on {}: {}", canonical_text(problem),
                                                    device.name, fmt::join(reasons, "; ")));
  }
  if (choices.size() == 1) return choices.front();
  const auto time = [&](const KernelConfig& config) { return estimate_cost(problem, config, device).microseconds; };
  // The last of equals: families stand in the order in which they came.
  return *std::min_element(choices.rbegin(), choices.rend(),
                           [&](const KernelConfig& a, const KernelConfig& b) { return time(a) < time(b); });
}

std::string unsupported(const AttentionProblem& problem, const DeviceSpec& device) {
  try {
    default_config(problem, device);
    return {};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::unsupported) throw;
    return error.what();
  }
}

std::size_t most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device) {
  std::size_t most = 0;
  const Question question{problem, device};
  for (const KernelFamily& family : kernel_families()) {
    Reasons reasons;
    if (family.pass == problem.pass && serves(family, question, &reasons))
      most = std::max(most, family.most_workspace(question));
  }
  return most;
}

KernelPlan generate_reference(const AttentionProblem& problem, const DeviceSpec& device, const TemplateSet& templates,
                              KernelTarget target) {
  validate(problem);
  // Scores of as many keys as there are threads, as much again for reductions, and the query.
  const bool drops = problem.dropout != 0;  // then what each key counts lies there, too
  const std::size_t shared_bytes =
      sizeof(double) * static_cast<std::size_t>((drops ? 3 : 2) * kReferenceThreads + problem.head_dim);

  TemplateBindings bindings;
  bindings.set("dtype", std::string(facts_of(problem.dtype).ptx));
  bindings.set("mask", std::string(to_string(problem.mask)));
  bindings.set("score", oracle_score(problem));
  bindings.set("score_formula", oracle_score_formula(problem));
  bindings.conditions["sink"] = problem.sink;
  bindings.set("lengths", oracle_lengths(problem));
  bind_oracle_added(problem, &bindings);
  bindings.set("share_words", drops ? "   share [kThreads]" : "");
  bindings.set("and_share",
               drops ? ", kept_share(args, rows.batch * args.heads_q + query.head, position, first + mine)" : "");
  bindings.set("head_dim", problem.head_dim);
  bindings.set("smallest_normal", fmt::format("0x1p{}", oracle_least_exponent(problem)));
  bindings.set("threads", kReferenceThreads);
  bindings.set("shared_bytes", static_cast<std::int64_t>(shared_bytes));

  KernelLaunch launch;
  launch.threads = kReferenceThreads;
  launch.shared_bytes = shared_bytes;
  launch.tile_rows = TileRows::following;
  launch.rows_per_tile = 1;
  launch.arguments = reference_arguments(problem);
  render_launch("reference_forward", reference_class(problem), device, templates, target, std::move(bindings), &launch);

  KernelPlan plan = plan_of(problem);
  plan.kernel_class = reference_class(problem);
  plan.launches.push_back(std::move(launch));
  plan.ordered_outputs = {Operand::o, Operand::lse};
  return plan;
}

}  // namespace attune
