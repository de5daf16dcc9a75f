#include "generator/families/backward_sm90/fused_dbias.h"

#include <fmt/format.h>

#include <string_view>

#include "generator/problem/operand_shape.h"

namespace attune {
namespace {

bool repeats(const AttentionProblem& problem) {
  const OperandShape shape = operand_shape(problem, Operand::d_bias);
  return shape.batch < problem.batch || shape.heads < problem.heads_q || shape.rows < problem.seq_q;
}

}  // namespace

void check_fused_dbias(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons) {
  if (!config.fused_dbias) return;
  const auto refuse = [&](bool present, std::string_view why) {
    if (present) reasons->push_back(fmt::format("fused-dbias: {}; leave the word out", why));
  };
  if (!problem.bias_gradient) return refuse(true, "no gradient of a bias is asked for");
  refuse(repeats(problem), "the bias repeats, so that its gradient is a sum over several pairs");
  refuse(size_of(operand_shape(problem, Operand::d_bias).element) != size_of(problem.dtype),
         "the gradient is of fp32, and dS is rounded to 16 bits");
  refuse(problem.softcap != 0, "dS has passed the derivative of the softcap, which a bias does not");
  refuse(problem.mask != MaskKind::none, "blocks that the mask hides whole are not walked through");
  refuse(problem.has_used_lengths(), "blocks that no sequence reaches are not walked through");
  refuse(config.visible_blocks, "visible-blocks passes blocks over");
  refuse(problem.invariant, "whether a bias repeats depends on the size of the problem");
  refuse(config.dq_by != DqWarpgroups::own, "dq-by=softmax leaves no warpgroup that only reads dS");
  refuse(config.dq_adds != DqAdds::red, "dq-adds=bulk has stores of its own to wait for");
  refuse(config.cluster > 1, "cluster: a CTA reads the dS of another one");
}

void append_fused_dbias(Arguments* fields, const KernelConfig& config) {
  if (!config.fused_dbias) return;
  append_pointers(fields, {Operand::d_bias});
  append_strides(fields, {Operand::d_bias});
  append(fields, {TensorMap{Operand::d_bias}, ByTensorMap{Operand::d_bias}});
}

KernelConfig with_fused_dbias(const AttentionProblem& problem, const KernelConfig& config) {
  KernelConfig fused = config;
  fused.fused_dbias = true;
  std::vector<std::string> reasons;
  check_fused_dbias(problem, fused, &reasons);
  fused.fused_dbias = reasons.empty();
  return fused;
}

void adapt_fused_dbias(const Question& question, Adaptation* adaptation) {
  KernelConfig& config = adaptation->config;
  const bool had = config.fused_dbias;
  config = with_fused_dbias(question.problem, config);
  if (config.fused_dbias == had) return;
  adaptation->changes.push_back(had ? "without fused-dbias, which does not serve the problem"
                                    : "with fused-dbias, for the gradient of a bias that repeats along nothing");
}

}  // namespace attune
