#pragma once

// Attune's C++ interface: attention on raw device pointers.
//
//   attune::AttentionProblem problem = attune::make_problem(attune::DataType::bf16, batch, heads, seq, head_dim,
//                                                           attune::MaskKind::causal);
//   attune::Tensors tensors;                                                // pointers and strides, by operand
//   tensors[attune::Operand::q] = ...;
//   std::size_t bytes = attune::attention_workspace_bytes(problem);          // at a multiple of 256
//   attune::attention_forward(problem, tensors, workspace, bytes, stream);   // asynchronous on the stream

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/operand_shape.h"
#include "runtime/call/config_source.h"
#include "runtime/device.h"
#include "runtime/system/template_folder.h"

namespace attune {

/// A tensor (B, H, S, D) in device memory. Strides are in elements, 64-bit, of any sign and size; D is contiguous. What
/// has a number for each row (LSE, dLSE: fp32, (B, Hq, Sq), contiguous) or query head (sinks, dsinks: fp32, (Hq)) has
/// no strides: its view has `data` alone.
struct TensorView {
  const void* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_row = 0;
};

/// What dropout draws from, of a call that has no dropout_state (two int64 in device memory, the seed and the offset:
/// what a CUDA graph finds there when it is replayed counts). With one, its seed counts, and both offsets are added.
struct DropoutSeed {
  std::uint64_t seed = 0, offset = 0;
};

/// The tensors of a call, by operand. A forward call reads q, k and v and writes o and lse (natural logarithm; or
/// null). A backward call reads all of these, with LSE not null, d_o, and d_lse as LSE is, or null: the loss does not
/// depend on LSE. It writes d_q, d_k and d_v, every element, with 0 where a query sees nothing or nobody sees a key.
/// Problems with sinks read them, and backward writes d_sinks, too; those with ALiBi read alibi_slopes, whose view has
/// the strides of the batch (0: all of it shares them) and the head; those with used lengths may read seqused_q and
/// seqused_kv. With dropout, backward drops what forward has dropped if both have the same seed and offset.
/// Operands that a call has no use for are not looked at.
class Tensors {
 public:
  TensorView& operator[](Operand operand) { return views_[static_cast<std::size_t>(operand)]; }
  const TensorView& operator[](Operand operand) const { return views_[static_cast<std::size_t>(operand)]; }

  DropoutSeed dropout;

 private:
  std::array<TensorView, kOperandCount> views_;
};

/// Strides of a packed tensor in problem.layout.
TensorView packed_view(const AttentionProblem& problem, Operand operand, const void* data = nullptr);

/// 16 if every row of the tensors of a call of the problem's pass starts at a multiple of 16 bytes and no stride is
/// negative or 2^40 bytes or more (TMA copies no others), else 2.
int alignment_of(const Tensors& tensors, const AttentionProblem& problem);

/// A plan with its kernels loaded: what a repeated call launches.
struct PreparedAttention {
  KernelPlan plan;
  ConfigChoice choice;
  std::vector<std::shared_ptr<const CompiledKernel>> kernels;  // one per launch of the plan
};

class PlanCache;

/// Answers attention calls on one device. Thread-safe. Keeps launchable plans in a map by dispatch class; a hit costs
/// about a microsecond above the bare launches. The config comes from `source`, whose picks that do not fit or compile
/// are passed over, or is the default config; PreparedAttention::choice tells. A problem with a mask that hides nothing
/// is the problem without it (simplest_mask()), so that its kernels, its configs and its plans are those.
class AttentionRuntime {
 public:
  /// `templates` are copied.
  explicit AttentionRuntime(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source = nullptr,
                            const TemplateSet& templates = runtime_templates());
  ~AttentionRuntime();

  /// O and LSE of `problem` (its layout is ignored, its alignment is found from the tensors). Asynchronous on `stream`;
  /// a first call of a dispatch class compiles, so that it must not come while `stream` is being captured: prepare()
  /// before. The workspace holds at least workspace_bytes(problem) bytes. Throws Error.
  void forward(const AttentionProblem& problem, const Tensors& tensors, void* workspace, std::size_t workspace_bytes,
               Stream stream);
  /// dQ, dK and dV of `problem`, whose pass is backward; otherwise as forward(). Allocates nothing: delta lies in the
  /// workspace.
  void backward(const AttentionProblem& problem, const Tensors& tensors, void* workspace, std::size_t workspace_bytes,
                Stream stream);
  /// What forward(), backward() and launch() need at most for tensors of problem.alignment, whatever is picked,
  /// prepared or given, and the same at each call. Forward: a few bytes and, where rows of queries are few, room for
  /// the fp32 results of parts of their keys (some megabytes; the length of the keys does not matter up to 2^17; longer
  /// rows take up to 36 MB more). Backward: an fp32 dQ, and a few bytes of each query; dK and dV too where heads
  /// share keys, where more than 2^17 queries see a key, or where keys are few. A workspace starts at a multiple of 256
  /// bytes. Compiles nothing.
  std::size_t workspace_bytes(const AttentionProblem& problem);

  /// What forward() would launch, compiled and loaded; with `config`, that one instead of the picked one. Threads that
  /// prepare different kernels compile side by side; those that want the same one wait for the first. Throws
  /// Error(infeasible_config) where the config does not fit, also where it needs more than workspace_bytes(): one that
  /// promotes the sums of short rows, or splits their queries.
  std::shared_ptr<const PreparedAttention> prepare(const AttentionProblem& problem,
                                                   const std::optional<KernelConfig>& config = std::nullopt);
  /// A plan that was generated for this device elsewhere (a step of the ladder), compiled and loaded. Its launch()
  /// needs plan.workspace_bytes_of(problem) bytes of workspace, which may be far more than workspace_bytes().
  std::shared_ptr<const PreparedAttention> prepare(KernelPlan plan);
  /// Launches a prepared plan on any problem of its kernel class, which is that of the simplest_mask() it was prepared
  /// for: one for causal at a single query, which hides nothing, runs no causal problem of several. Throws
  /// Error(infeasible_config) if the plan's config does not fit this problem (lengths that are no multiples of a config
  /// for whole tiles), Error(invalid_argument) if its tensors are not as aligned as the plan expects.
  void launch(const PreparedAttention& prepared, const AttentionProblem& problem, const Tensors& tensors,
              void* workspace, std::size_t workspace_bytes, Stream stream);

  const std::shared_ptr<Device>& device() const;

 private:
  std::unique_ptr<PlanCache> plans_;
};

/// The runtime of the calling thread's current CUDA device (ordinal 0 if it has none), made at the first call, with the
/// process-wide config source. It lives until the process ends. Throws Error(invalid_argument) if the current context
/// is not that device's primary one.
AttentionRuntime& current_runtime();
/// The same for a GPU by its ordinal. Throws Error(no_device).
AttentionRuntime& runtime_of(int ordinal);
/// Sets the config source of runtimes made from now on.
void set_default_config_source(std::shared_ptr<ConfigSource> source);
/// What was set last; null if nothing was.
std::shared_ptr<ConfigSource> default_config_source();

void attention_forward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                       std::size_t workspace_bytes, Stream stream);
void attention_backward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                        std::size_t workspace_bytes, Stream stream);
std::size_t attention_workspace_bytes(const AttentionProblem& problem);

}  // namespace attune
