#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/cuda/nvrtc_compiler.h"

namespace attune {

/// A kernel that was compiled elsewhere, ahead of time.
struct PackedKernel {
  CompiledText compiled;
  std::string origin;  ///< for people: the file that it comes from, and which compiler made it
};

/// Kernels that were compiled elsewhere, which the cubin cache and NVRTC are not asked for. Thread-safe; compiles
/// nothing.
class KernelSource {
 public:
  virtual ~KernelSource() = default;
  virtual std::optional<PackedKernel> find(const KernelLaunch& launch) const = 0;
  virtual bool has(const KernelLaunch& launch) const = 0;
};

/// By what a kernel is found that was compiled elsewhere: a hash of source_body(), nvrtc_flags() and arch. Unlike the
/// cubin cache's key it does not ask which NVRTC is here.
std::string kernel_key(const KernelLaunch& launch);

/// The source of all CUDA devices of this process; null until one is set. Thread-safe.
std::shared_ptr<const KernelSource> kernel_source();
void set_kernel_source(std::shared_ptr<const KernelSource> source);

}  // namespace attune
