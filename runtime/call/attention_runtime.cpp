#include <optional>
#include <utility>

#include "attune/attention.h"
#include "generator/generate.h"
#include "runtime/call/argument_packer.h"
#include "runtime/call/call_checks.h"
#include "runtime/call/nvtx_range.h"
#include "runtime/call/plan_cache.h"

namespace attune {
namespace {

// What launches read where the plan has copies: each in place of its operand, if no tensor map describes that.
Tensors with_copies(const KernelPlan& plan, const AttentionProblem& problem, const Tensors& tensors,
                    DevicePointer workspace) {
  Tensors copied = tensors;
  for (const OperandCopy& copy : plan.copies) {
    if (!has_tensor_map(problem, copy.operand, tensors[copy.operand]))
      copied[copy.operand] = view_of_copy(plan, problem, copy, workspace);
  }
  return copied;
}

// Everything has been checked.
void launch_checked(Device& device, const PreparedAttention& prepared, const AttentionProblem& problem,
                    const Tensors& tensors, void* workspace, Stream stream) {
  const KernelPlan& plan = prepared.plan;
  const NvtxRange range("", problem, plan.config);
  const std::size_t zeroed_bytes = plan.zeroed_bytes_of(problem);
  const auto used = reinterpret_cast<DevicePointer>(workspace);
  if (zeroed_bytes != 0) device.fill(used, 0, zeroed_bytes, stream);
  const ArgumentValues values = workspace_values(plan, problem, used);
  std::optional<Tensors> copied;
  if (!plan.copies.empty()) copied = with_copies(plan, problem, tensors, used);
  PackedArguments arguments;
  for (std::size_t i = 0; i < plan.launches.size(); ++i) {
    const bool copies = i < plan.copies.size();
    if (copies && has_tensor_map(problem, plan.copies[i].operand, tensors[plan.copies[i].operand])) continue;
    pack_arguments(plan.launches[i], problem, copied && !copies ? *copied : tensors, values, device, arguments);
    device.launch(*prepared.kernels[i], plan.launches[i].grid_x(problem), arguments.data.data(), arguments.bytes,
                  stream);
  }
}

void call(PlanCache& plans, Pass pass, const AttentionProblem& asked, const Tensors& tensors, void* workspace,
          std::size_t workspace_bytes, Stream stream) {
  require_pass(asked, pass);
  require_tensors(tensors, asked);
  AttentionProblem aligned = asked;
  aligned.alignment = alignment_of(tensors, asked);
  const auto [prepared, problem] = plans.last_or_found(aligned, pass, stream);
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  launch_checked(*plans.device(), prepared, problem, tensors, workspace, stream);
}

}  // namespace

AttentionRuntime::AttentionRuntime(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source,
                                   const TemplateSet& templates)
    : plans_(std::make_unique<PlanCache>(std::move(device), std::move(source), templates)) {}

AttentionRuntime::~AttentionRuntime() = default;

void AttentionRuntime::forward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                               std::size_t workspace_bytes, Stream stream) {
  call(*plans_, Pass::forward, problem, tensors, workspace, workspace_bytes, stream);
}

void AttentionRuntime::backward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                                std::size_t workspace_bytes, Stream stream) {
  call(*plans_, Pass::backward, problem, tensors, workspace, workspace_bytes, stream);
}

std::size_t AttentionRuntime::workspace_bytes(const AttentionProblem& problem) {
  validate(problem);
  return most_workspace_bytes(simplest_mask(problem), plans_->device()->spec());
}

std::shared_ptr<const PreparedAttention> AttentionRuntime::prepare(const AttentionProblem& asked,
                                                                   const std::optional<KernelConfig>& config) {
  validate(asked);
  const AttentionProblem problem = simplest_mask(asked);
  if (!config) return plans_->find_or_compile(problem);
  return plans_->compile(problem, {*config, ConfigOrigin::given, "", ""});
}

std::shared_ptr<const PreparedAttention> AttentionRuntime::prepare(KernelPlan plan) {
  ConfigChoice choice{plan.config, ConfigOrigin::default_config, "", ""};
  return plans_->load(std::move(plan), std::move(choice));
}

void AttentionRuntime::launch(const PreparedAttention& prepared, const AttentionProblem& asked, const Tensors& tensors,
                              void* workspace, std::size_t workspace_bytes, Stream stream) {
  require_pass(prepared.plan.problem, asked.pass);
  require_tensors(tensors, asked);
  const AttentionProblem problem =
      require_fit(prepared.plan, asked, alignment_of(tensors, asked), plans_->device()->spec());
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  launch_checked(*plans_->device(), prepared, problem, tensors, workspace, stream);
}

const std::shared_ptr<Device>& AttentionRuntime::device() const { return plans_->device(); }

}  // namespace attune
