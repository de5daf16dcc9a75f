#include "tuner/trial/trial_reference.h"

#include <utility>

#include "runtime/oracle/error_summary.h"

namespace attune {
namespace {

class HostForward final : public TrialReference {
 public:
  HostForward(const AttentionProblem& problem, ReferenceForward reference)
      : problem_(problem), reference_(std::move(reference)) {}

  std::vector<OutputErrors> compare(const TrialTensors& tensors, DeviceOracle*) override {
    tensors.read_back(Operand::o, o_);
    tensors.read_back(Operand::lse, lse_);
    return compare_forward(problem_, reference_, o_, lse_).outputs;
  }

 private:
  const AttentionProblem problem_;
  const ReferenceForward reference_;
  // Scratch that is kept from trial to trial: fresh memory costs more than what is done with it.
  std::vector<std::uint16_t> o_;
  std::vector<float> lse_;
};

class HostBackward final : public TrialReference {
 public:
  HostBackward(const AttentionProblem& problem, ReferenceBackward reference)
      : problem_(problem), reference_(std::move(reference)) {}

  std::vector<OutputErrors> compare(const TrialTensors& tensors, DeviceOracle*) override {
    tensors.read_back(Operand::d_q, d_q_);
    tensors.read_back(Operand::d_k, d_k_);
    tensors.read_back(Operand::d_v, d_v_);
    if (problem_.sink) tensors.read_back(Operand::d_sinks, d_sinks_);
    if (problem_.bias_gradient) tensors.read_back(Operand::d_bias, d_bias_);
    return compare_backward(problem_, reference_, d_q_, d_k_, d_v_, d_sinks_, d_bias_).outputs;
  }

 private:
  const AttentionProblem problem_;
  const ReferenceBackward reference_;
  std::vector<std::uint16_t> d_q_, d_k_, d_v_;  // scratch
  std::vector<float> d_sinks_;
  std::vector<std::byte> d_bias_;
};

std::uint64_t sum_of(const DeviceBuffer& buffer, DeviceOracle* oracle) {
  return oracle->checksum(buffer.pointer(), static_cast<std::int64_t>(buffer.bytes() / sizeof(std::uint16_t)));
}

class DeviceForward final : public TrialReference {
 public:
  DeviceForward(const AttentionProblem& problem, DeviceReference reference)
      : problem_(problem), reference_(std::move(reference)) {}

  std::vector<OutputErrors> compare(const TrialTensors& tensors, DeviceOracle* oracle) override {
    tensors.read_back(Operand::lse, lse_);
    return {oracle->compare_o(reference_, tensors.call(0)[Operand::o]), compare_lse(problem_, reference_.lse, lse_)};
  }
  std::vector<std::uint64_t> checksums(DeviceOracle* oracle) const override {
    return {sum_of(reference_.o, oracle), sum_of(reference_.weight, oracle)};
  }
  std::unique_ptr<TrialReference> on_host(Device& device) const override {
    return std::make_unique<HostForward>(problem_, reference_.to_host(device));
  }

 private:
  const AttentionProblem problem_;
  const DeviceReference reference_;
  std::vector<float> lse_;  // scratch
};

class DeviceBackward final : public TrialReference {
 public:
  DeviceBackward(const AttentionProblem& problem, DeviceGradients reference)
      : problem_(problem), reference_(std::move(reference)) {}

  std::vector<OutputErrors> compare(const TrialTensors& tensors, DeviceOracle* oracle) override {
    return oracle->compare_gradients(reference_, tensors.call(0));
  }
  std::vector<std::uint64_t> checksums(DeviceOracle* oracle) const override {
    return {sum_of(reference_.d_q.buffer, oracle), sum_of(reference_.d_k.buffer, oracle),
            sum_of(reference_.d_v.buffer, oracle)};
  }
  std::unique_ptr<TrialReference> on_host(Device& device) const override {
    return std::make_unique<HostBackward>(problem_, reference_.to_host(device));
  }

 private:
  const AttentionProblem problem_;
  const DeviceGradients reference_;
};

}  // namespace

std::unique_ptr<TrialReference> make_host_reference(const AttentionProblem& problem, const TrialTensors& tensors,
                                                    const TermValues& terms) {
  const auto values = [&](Operand operand) {
    std::vector<std::uint16_t> elements;
    tensors.read_back(operand, elements);
    return elements;
  };
  const std::vector<std::uint16_t> q = values(Operand::q), k = values(Operand::k), v = values(Operand::v);
  if (problem.pass == Pass::forward)
    return std::make_unique<HostForward>(problem, reference_forward(problem, q, k, v, terms));
  const std::vector<std::uint16_t> d_o = values(Operand::d_o);
  std::vector<float> d_lse;
  tensors.read_back(Operand::d_lse, d_lse);
  return std::make_unique<HostBackward>(problem, reference_backward(problem, {q, k, v, d_o, d_lse, terms}));
}

std::unique_ptr<TrialReference> make_trial_device_reference(const std::shared_ptr<Device>& device,
                                                            const AttentionProblem& problem,
                                                            const TrialTensors& tensors) {
  if (problem.pass == Pass::forward)
    return std::make_unique<DeviceForward>(problem, make_device_reference(device, problem, tensors.call(0)));
  return std::make_unique<DeviceBackward>(problem, make_device_gradients(device, problem, tensors.call(0)));
}

std::size_t device_reference_bytes(const AttentionProblem& problem) {
  return problem.pass == Pass::forward ? DeviceReference::bytes_of(problem) : DeviceGradients::bytes_of(problem);
}

}  // namespace attune
