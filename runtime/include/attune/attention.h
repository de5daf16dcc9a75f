#pragma once

// Attune's C++ interface: attention on raw device pointers.
//
//   attune::AttentionProblem problem = attune::make_problem(attune::DataType::bf16, batch, heads, seq, head_dim,
//                                                           attune::MaskKind::causal);
//   attune::ForwardTensors tensors = ...;                                    // pointers and strides
//   std::size_t bytes = attune::attention_workspace_bytes(problem);          // a few, or none
//   attune::attention_forward(problem, tensors, workspace, bytes, stream);   // asynchronous on the stream

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "generator/ladder/attention_algorithm.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "runtime/call/config_source.h"
#include "runtime/device.h"
#include "runtime/system/template_folder.h"

namespace attune {

/// A tensor (B, H, S, D) in device memory. Strides are in elements, 64-bit, of any sign and size; D is contiguous.
struct TensorView {
  const void* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_row = 0;
};

/// What a forward call reads and writes. `o` is written; `lse` is (B, Hq, Sq) fp32, natural logarithm, contiguous, or
/// null.
struct ForwardTensors {
  TensorView q, k, v, o;
  float* lse = nullptr;
};

/// What a backward call takes beside the tensors of the forward call, whose O and LSE it reads (LSE must not be null).
/// d_q, d_k and d_v are written, every element, with 0 where a query sees nothing or nobody sees a key. d_lse is as
/// LSE is, or null: the loss does not depend on LSE.
struct GradientTensors {
  TensorView d_o;
  const float* d_lse = nullptr;
  TensorView d_q, d_k, d_v;
};

/// Strides of a packed tensor in problem.layout, `data` null.
TensorView packed_view(const AttentionProblem& problem, Operand operand);

/// 16 if every row of the four tensors starts at a multiple of 16 bytes and no stride is negative or 2^40 bytes or more
/// (TMA copies no others), else 2.
int alignment_of(const ForwardTensors& tensors, const AttentionProblem& problem);
/// The same of all eight tensors of a backward call.
int alignment_of(const ForwardTensors& tensors, const GradientTensors& gradients, const AttentionProblem& problem);

/// A plan with its kernels loaded: what a repeated call launches.
struct PreparedAttention {
  KernelPlan plan;
  ConfigChoice choice;
  std::vector<std::shared_ptr<const CompiledKernel>> kernels;  // one per launch of the plan
};

/// Answers attention calls on one device. Thread-safe. Keeps launchable plans in a map by dispatch class; a hit costs
/// about a microsecond above the bare launches. The config comes from `source`, whose picks that do not fit or compile
/// are passed over, or is the default config; PreparedAttention::choice tells.
class AttentionRuntime {
 public:
  /// `templates` are copied.
  explicit AttentionRuntime(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source = nullptr,
                            const TemplateSet& templates = runtime_templates());
  ~AttentionRuntime();

  /// O and LSE of `problem` (its layout is ignored, its alignment is found from the tensors). Asynchronous on `stream`;
  /// a first call of a dispatch class compiles, so that it must not come while `stream` is being captured: prepare()
  /// before. The workspace holds at least workspace_bytes(problem) bytes; one that holds
  /// plan.counted_workspace_bytes of the plan that is launched counts how often its rare paths were taken. Throws
  /// Error.
  void forward(const AttentionProblem& problem, const ForwardTensors& tensors, void* workspace,
               std::size_t workspace_bytes, Stream stream);
  /// dQ, dK and dV of `problem`, whose pass is backward; otherwise as forward(). Allocates nothing: delta lies in the
  /// workspace, which starts at a multiple of 256 bytes.
  void backward(const AttentionProblem& problem, const ForwardTensors& tensors, const GradientTensors& gradients,
                void* workspace, std::size_t workspace_bytes, Stream stream);
  /// What forward(), backward() and launch() need at most for tensors of problem.alignment, whatever is picked,
  /// prepared or given: a few bytes (backward: an fp32 dQ, where heads share keys dK and dV too, and a few
  /// bytes of each query), and the same at each call.
  /// Compiles nothing.
  std::size_t workspace_bytes(const AttentionProblem& problem);

  /// What forward() would launch, compiled and loaded; with `config`, that one instead of the picked one.
  std::shared_ptr<const PreparedAttention> prepare(const AttentionProblem& problem,
                                                   const std::optional<KernelConfig>& config = std::nullopt);
  /// A step of the ladder by which FlashAttention is derived, compiled and loaded: for readers and comparisons. Its
  /// launch() needs plan.workspace_bytes_of(problem) bytes of workspace, which may be far more than workspace_bytes().
  std::shared_ptr<const PreparedAttention> prepare(const AttentionProblem& problem, AttentionAlgorithm algorithm);
  /// Launches a prepared plan on any problem of its kernel class. Throws Error(infeasible_config) if the plan's config
  /// does not fit this problem (lengths that are no multiples of a config for whole tiles), Error(invalid_argument) if
  /// its tensors are not as aligned as the plan expects.
  void launch(const PreparedAttention& prepared, const AttentionProblem& problem, const ForwardTensors& tensors,
              void* workspace, std::size_t workspace_bytes, Stream stream);
  /// The same for a prepared backward plan.
  void launch(const PreparedAttention& prepared, const AttentionProblem& problem, const ForwardTensors& tensors,
              const GradientTensors& gradients, void* workspace, std::size_t workspace_bytes, Stream stream);

  const std::shared_ptr<Device>& device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The runtime of the calling thread's current CUDA device (ordinal 0 if it has none), made at the first call, with the
/// process-wide config source. It lives until the process ends. Throws Error(invalid_argument) if the current context
/// is not that device's primary one.
AttentionRuntime& current_runtime();
/// The same for a GPU by its ordinal. Throws Error(no_device).
AttentionRuntime& runtime_of(int ordinal);
/// Sets the config source of runtimes made from now on.
void set_default_config_source(std::shared_ptr<ConfigSource> source);

void attention_forward(const AttentionProblem& problem, const ForwardTensors& tensors, void* workspace,
                       std::size_t workspace_bytes, Stream stream);
void attention_backward(const AttentionProblem& problem, const ForwardTensors& tensors,
                        const GradientTensors& gradients, void* workspace, std::size_t workspace_bytes, Stream stream);
std::size_t attention_workspace_bytes(const AttentionProblem& problem);

}  // namespace attune
