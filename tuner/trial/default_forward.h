#pragma once

#include <memory>
#include <utility>

#include "attune/attention.h"

namespace attune {

/// The default forward kernel of a problem, but for parts of the keys, of a backward one that of its forward: on a GPU
/// one leaves the O and LSE that backward kernels read, and one, launched on a large batch, keeps the queue full while
/// others are timed. Not thread-safe; functions throw Error.
class DefaultForward {
 public:
  /// `runtime` outlives this.
  DefaultForward(std::shared_ptr<Device> device, AttentionRuntime& runtime, const AttentionProblem& problem)
      : device_(std::move(device)), runtime_(runtime), problem_(forward_of(problem)) {}

  const AttentionProblem& problem() const { return problem_; }
  /// Compiles it and allocates its workspace, once.
  void prepare();
  const PreparedAttention* prepared() const { return prepared_.get(); }  ///< nullptr before prepare()
  const DeviceBuffer& workspace() const { return workspace_; }
  void launch(const Tensors& tensors);
  /// Waits for what was launched.
  void synchronize() { device_->synchronize(nullptr); }

 private:
  std::shared_ptr<Device> device_;
  AttentionRuntime& runtime_;
  const AttentionProblem problem_;
  std::shared_ptr<const PreparedAttention> prepared_;
  DeviceBuffer workspace_;
};

}  // namespace attune
