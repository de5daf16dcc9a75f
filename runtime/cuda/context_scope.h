#pragma once

#include "runtime/cuda/cuda_driver.h"

namespace attune {

/// Makes a context current for a scope. Nothing is pushed where it is current already, which is the common case. Throws
/// Error(no_device) where CUDA does not work, since this process was forked.
class ContextScope {
 public:
  ContextScope(const CudaDriver& driver, CUcontext context) : driver_(driver) {
    require_unforked_cuda();
    CUcontext current = nullptr;
    driver.check(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == context) return;
    driver.check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

/// For all but launches and what belongs to them: see RelaxedCapture.
class RelaxedScope {
 public:
  RelaxedScope(const CudaDriver& driver, CUcontext context) : context_(driver, context), capture_(driver) {}

 private:
  const ContextScope context_;
  const RelaxedCapture capture_;
};

}  // namespace attune
