#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tuner/trial/trial_tensors.h"

namespace attune {

/// What the outputs of a problem's kernels are compared with. Not thread-safe; functions throw Error.
class TrialReference {
 public:
  virtual ~TrialReference() = default;

  /// Errors of the outputs' first copies: o and lse, or dq, dk, dv and dsinks.
  virtual std::vector<OutputErrors> compare(const TrialTensors& tensors, DeviceOracle* oracle) = 0;

  /// Checksums of what lies in device memory, where a kernel's wild write may reach it; empty if nothing does.
  virtual std::vector<std::uint64_t> checksums(DeviceOracle*) const { return {}; }

  /// The same without device memory; nullptr if it has none.
  virtual std::unique_ptr<TrialReference> on_host(Device&) const { return nullptr; }
};

/// By the oracle's scalar code.
std::unique_ptr<TrialReference> make_host_reference(const AttentionProblem& problem, const TrialTensors& tensors,
                                                    const TermValues& terms);

/// By its generated kernels, compared on the device, too: for large problems. Takes device_reference_bytes() of device
/// memory.
std::unique_ptr<TrialReference> make_trial_device_reference(const std::shared_ptr<Device>& device,
                                                            const AttentionProblem& problem,
                                                            const TrialTensors& tensors);
std::size_t device_reference_bytes(const AttentionProblem& problem);

}  // namespace attune
