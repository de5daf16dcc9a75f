#include "runtime/call/call_checks.h"

#include <cstdint>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"

namespace attune {
void require_tensors(const Tensors& tensors, const AttentionProblem& problem) {
  for (const Operand operand : kOperands) {
    const OperandFacts& facts = facts_of(operand);
    const Access access = facts.access(problem);
    if (access == Access::none) continue;
    const void* const data = tensors[operand].data;
    if (data == nullptr && (access == Access::reads || access == Access::writes)) {
      throw Error(ErrorCode::invalid_argument, "tensor " + std::string(facts.name) + " is a null pointer, but " +
                                                   std::string(to_string(problem.pass)) +
                                                   (access == Access::reads ? " reads it" : " writes it"));
    }
    constexpr std::uintptr_t kLargestElement = 8;
    if (reinterpret_cast<std::uintptr_t>(data) % kLargestElement == 0) continue;
    const int bytes = size_of(facts.shape(problem).element);
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) != 0) {
      throw Error(ErrorCode::invalid_argument, "tensor " + std::string(facts.name) +
                                                   " starts at an address that is no multiple of " +
                                                   std::to_string(bytes) + ", the bytes of an element");
    }
  }
}

void require_pass(const AttentionProblem& problem, Pass pass) {
  if (problem.pass != pass) {
    throw Error(ErrorCode::invalid_argument,
                "'" + canonical_text(problem) + "' is no " + std::string(to_string(pass)) + " problem");
  }
}

void require_workspace(const KernelPlan& plan, const AttentionProblem& problem, const void* workspace,
                       std::size_t bytes) {
  const std::size_t needed = plan.workspace_bytes_of(problem);
  if (needed == 0) return;
  if (workspace == nullptr || bytes < needed) {
    throw Error(ErrorCode::invalid_argument, "the workspace holds " + std::to_string(workspace == nullptr ? 0 : bytes) +
                                                 " bytes, " + std::to_string(needed) +
                                                 " are needed; ask workspace_bytes() for the size");
  }
  if (!plan.buffers.empty() && reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    throw Error(ErrorCode::invalid_argument, "the workspace starts at an address that is no multiple of " +
                                                 std::to_string(kWorkspaceAlignment) + "; this plan needs one that is");
  }
}

std::string lacking_workspace(const KernelPlan& plan, const AttentionProblem& problem, const DeviceSpec& device) {
  const std::size_t needed = plan.workspace_bytes_of(problem);
  if (needed == 0) return {};
  const std::size_t brought = most_workspace_bytes(problem, device);
  if (needed <= brought) return {};
  return "it needs " + std::to_string(needed) + " bytes of workspace, and a call of this problem brings " +
         std::to_string(brought) +
         "; take a config whose sums are promoted, or whose queries are split, only where "
         "rows are long enough to need it";
}

AttentionProblem require_fit(const KernelPlan& plan, const AttentionProblem& asked, int alignment,
                             const DeviceSpec& device) {
  AttentionProblem problem = asked;
  problem.alignment = plan.problem.alignment;
  if (!(problem == plan.problem)) {
    validate(problem);
    // A kernel of the mask that was asked for serves, too, where the mask hides nothing.
    if (!same_source(problem, plan.problem, plan.config)) problem = simplest_mask(problem);
    if (!same_source(problem, plan.problem, plan.config)) {
      throw Error(ErrorCode::invalid_argument,
                  "the kernel was prepared for " + plan.kernel_class + " and cannot run " + canonical_text(problem));
    }
    const std::vector<std::string> reasons = infeasibility_of_prepared(problem, plan.config, device);
    if (!reasons.empty()) {
      throw Error(ErrorCode::infeasible_config,
                  canonical_text(plan.config) + " does not fit " + canonical_text(problem) + ": " + joined(reasons));
    }
  }
  if (alignment < plan.problem.alignment) {
    throw Error(ErrorCode::invalid_argument, "the kernel was prepared for rows that start at multiples of " +
                                                 std::to_string(plan.problem.alignment) +
                                                 " bytes; these tensors have others, prepare it with alignment 2");
  }
  return problem;
}

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

}  // namespace attune
