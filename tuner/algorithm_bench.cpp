#include "tuner/algorithm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/oracle/device_oracle.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/template_folder.h"
#include "tuner/cold_timing.h"
#include "tuner/trial.h"

namespace attune {
namespace {

constexpr std::uint8_t kGuardPattern = 0xa5, kNotANumber = 0xff;  // repeated: NaN in fp16, bf16 and fp32
constexpr std::size_t kGuard = 4096;                              // bytes on each side of a tensor
constexpr int kWholeAlignment = 16;

// A packed tensor in device memory between guards. The emulator reports what a guard is for.
class GuardedTensor {
 public:
  GuardedTensor(const std::shared_ptr<Device>& device, std::size_t bytes, int alignment)
      : device_(device), guard_(device->can_time() ? kGuard : 0), bytes_(bytes) {
    offset_ = guard_ + (alignment < kWholeAlignment ? static_cast<std::size_t>(alignment) : 0);
    buffer_ = DeviceBuffer(device, offset_ + bytes_ + guard_);
  }

  DevicePointer pointer() const { return buffer_.pointer() + offset_; }
  std::size_t bytes() const { return bytes_; }

  void upload(const std::vector<std::uint16_t>& values) {
    device_->fill(buffer_.pointer(), kNotANumber, buffer_.bytes());
    device_->copy_to_device(pointer(), values.data(), bytes_);
  }
  void poison() {
    device_->fill(buffer_.pointer(), kGuardPattern, buffer_.bytes());
    device_->fill(pointer(), kNotANumber, bytes_);
  }
  template <typename T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    device_->copy_from_device(values.data(), pointer(), bytes_);
    return values;
  }
  bool guards_intact() const {
    const auto intact = [&](DevicePointer begin, std::size_t bytes) {
      std::vector<std::uint8_t> guard(bytes);
      device_->copy_from_device(guard.data(), begin, bytes);
      return std::all_of(guard.begin(), guard.end(), [](std::uint8_t byte) { return byte == kGuardPattern; });
    };
    return intact(buffer_.pointer(), offset_) && intact(pointer() + bytes_, guard_);
  }

 private:
  std::shared_ptr<Device> device_;
  std::size_t guard_, bytes_, offset_ = 0;
  DeviceBuffer buffer_;
};

OutputErrors broken(const std::string& name, std::string complaint) {
  OutputErrors errors;
  errors.name = name;
  errors.relative = errors.max_abs = std::numeric_limits<double>::quiet_NaN();
  errors.complaint = std::move(complaint);
  return errors;
}

class Bench {
 public:
  Bench(const std::shared_ptr<Device>& device, const AttentionProblem& problem, std::uint64_t seed)
      : device_(device),
        problem_(problem),
        runtime_(device, nullptr, runtime_templates()),
        rows_(static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q)),
        tensor_bytes_(size_of(problem.dtype) * rows_ * static_cast<std::size_t>(problem.head_dim)),
        q_values_(random(tensor_bytes_ / 2, 3 * seed)),
        k_values_(random(key_elements(), 3 * seed + 1)),
        v_values_(random(key_elements(), 3 * seed + 2)) {
    require_memory(2 * tensor_bytes_ + 4 * key_elements() + sizeof(float) * rows_ +
                   (on_device() ? DeviceReference::bytes_of(problem) + DeviceOracle::scratch_bytes() : 0));
    q_.emplace(device, tensor_bytes_, problem.alignment).upload(q_values_);
    k_.emplace(device, 2 * key_elements(), problem.alignment).upload(k_values_);
    v_.emplace(device, 2 * key_elements(), problem.alignment).upload(v_values_);
    o_.emplace(device, tensor_bytes_, problem.alignment);
    lse_.emplace(device, sizeof(float) * rows_, kWholeAlignment);
    if (on_device()) {
      oracle_.emplace(device, problem);
      device_reference_ = make_device_reference(device, problem, tensors());
    } else {
      reference_ = reference_forward(problem, q_values_, k_values_, v_values_);
    }
  }

  // Throws for expected failures.
  void check(AttentionAlgorithm algorithm, AlgorithmResult* result) {
    auto prepared = runtime_.prepare(problem_, algorithm);
    result->plan = prepared->plan;
    result->traffic = count_traffic(prepared->plan, algorithm, problem_);
    const std::size_t needed = prepared->plan.workspace_bytes_of(problem_);
    if (needed > workspace_.bytes()) {
      workspace_ = DeviceBuffer();
      require_memory(needed);
      workspace_ = DeviceBuffer(device_, needed);
    }
    if (needed != 0) device_->fill(workspace_.pointer(), kNotANumber, workspace_.bytes());
    o_->poison();
    lse_->poison();
    launch(*prepared);
    device_->synchronize(nullptr);
    result->outputs = compare();
    for (const OutputErrors& output : result->outputs) {
      if (output.within) continue;
      result->status = MeasurementStatus::wrong_result;
      result->reason += fmt::format("{}{}: {}", result->reason.empty() ? "" : "; ", output.name, output.complaint);
    }
    prepared_.push_back(std::move(prepared));
  }

  // Of the algorithms that were checked, in their order.
  std::vector<Timing> time(double seconds, int cuda_ordinal) {
    std::vector<TimedWork> works;
    for (const auto& prepared : prepared_) {
      TimedWork work;
      work.launch = [this, &prepared](std::uint64_t) { launch(*prepared); };
      work.occupy = [this, &prepared](std::int64_t) { launch(*prepared); };
      works.push_back(std::move(work));
    }
    TurnsPlan plan;
    plan.seconds = seconds;
    plan.batch_microseconds = kBatchMicroseconds;
    plan.cuda_ordinal = cuda_ordinal;
    return time_in_turns(device_, works, plan);
  }

 private:
  bool on_device() const { return device_->can_time() && count_flops(problem_) > kCpuOracleFlops; }

  std::size_t key_elements() const {
    return static_cast<std::size_t>(problem_.batch * problem_.heads_kv * problem_.seq_kv * problem_.head_dim);
  }
  std::vector<std::uint16_t> random(std::size_t count, std::uint64_t seed) const {
    return random_normal(problem_.dtype, count, seed);
  }

  void require_memory(std::size_t bytes) const {
    const std::size_t free = device_->free_bytes();
    if (bytes <= free) return;
    throw Error(ErrorCode::driver, fmt::format("out of memory: {} MiB are needed on {}, {} MiB are free",
                                               (bytes >> 20) + 1, device_->description(), free >> 20));
  }

  ForwardTensors tensors() const {
    const auto view = [&](Operand operand, const GuardedTensor& tensor) {
      TensorView packed = packed_view(problem_, operand);
      packed.data = reinterpret_cast<const void*>(tensor.pointer());
      return packed;
    };
    return {view(Operand::q, *q_), view(Operand::k, *k_), view(Operand::v, *v_), view(Operand::o, *o_),
            reinterpret_cast<float*>(lse_->pointer())};
  }

  void launch(const PreparedAttention& prepared) {
    runtime_.launch(prepared, problem_, tensors(), reinterpret_cast<void*>(workspace_.pointer()), workspace_.bytes(),
                    nullptr);
  }

  std::vector<OutputErrors> compare() {
    std::vector<OutputErrors> outputs;
    const std::vector<float> lse = lse_->read<float>();
    if (device_reference_) {
      outputs.push_back(oracle_->compare_o(*device_reference_, tensors().o));
      outputs.push_back(compare_lse(problem_, device_reference_->lse, lse));
    } else {
      outputs = compare_forward(problem_, *reference_, o_->read<std::uint16_t>(), lse).outputs;
    }
    if (!o_->guards_intact() || !lse_->guards_intact())
      outputs.push_back(broken("guards", "memory beside O or LSE was overwritten"));
    if (q_->read<std::uint16_t>() != q_values_ || k_->read<std::uint16_t>() != k_values_ ||
        v_->read<std::uint16_t>() != v_values_) {
      outputs.push_back(broken("inputs", "Q, K or V was overwritten"));
    }
    return outputs;
  }

  const std::shared_ptr<Device> device_;
  const AttentionProblem problem_;
  AttentionRuntime runtime_;
  const std::size_t rows_, tensor_bytes_;  // of Q, and of O
  const std::vector<std::uint16_t> q_values_, k_values_, v_values_;
  std::optional<GuardedTensor> q_, k_, v_, o_, lse_;
  std::optional<ReferenceForward> reference_;
  std::optional<DeviceReference> device_reference_;  // instead
  std::optional<DeviceOracle> oracle_;
  DeviceBuffer workspace_;
  std::vector<std::shared_ptr<const PreparedAttention>> prepared_;
};

int median_of(std::vector<int> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<AlgorithmResult> bench_algorithms(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                              const std::vector<AttentionAlgorithm>& algorithms,
                                              const AlgorithmBenchOptions& options) {
  validate(problem);
  Bench bench(device, problem, options.seed);
  std::vector<AlgorithmResult> results;
  std::vector<std::size_t> checked;
  for (const AttentionAlgorithm algorithm : algorithms) {
    results.emplace_back().algorithm = algorithm;
    try {
      bench.check(algorithm, &results.back());
      checked.push_back(results.size() - 1);
    } catch (const Error& error) {
      const std::optional<MeasurementStatus> status = status_of(error);
      if (!status || error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::template_error) throw;
      if (error.code() == ErrorCode::driver && *status != MeasurementStatus::out_of_memory) throw;
      results.back().status = *status;
      results.back().reason = error.what();
    }
  }
  if (!options.time || !device->can_time() || checked.empty()) return results;
  const std::vector<Timing> timings = bench.time(options.seconds, options.cuda_ordinal);
  for (std::size_t i = 0; i < checked.size(); ++i) {
    AlgorithmResult& result = results[checked[i]];
    if (result.status != MeasurementStatus::ok) continue;
    result.samples_us = timings[i].samples_us;
    result.sm_clock_mhz = median_of(timings[i].clocks_mhz);
    result.reason = timings[i].complaint;
  }
  return results;
}

}  // namespace attune
