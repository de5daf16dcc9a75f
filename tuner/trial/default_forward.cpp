#include "tuner/trial/default_forward.h"

#include "generator/generate.h"

namespace attune {

void DefaultForward::prepare() {
  if (!prepared_) {
    // Results of parts of a large batch would fit no workspace.
    KernelConfig config = default_config(problem_, device_->spec());
    config.key_parts = 1;
    prepared_ = runtime_.prepare(problem_, config);
  }
  if (workspace_.bytes() == 0) workspace_ = DeviceBuffer(device_, prepared_->plan.workspace_bytes_of(problem_));
}

void DefaultForward::launch(const Tensors& tensors) {
  prepare();
  runtime_.launch(*prepared_, problem_, tensors, reinterpret_cast<void*>(workspace_.pointer()), workspace_.bytes(),
                  nullptr);
}

}  // namespace attune
