#include "runtime/oracle/device_oracle.h"

#include <utility>

#include "generator/generate.h"
#include "generator/oracle_kernels.h"
#include "runtime/argument_packer.h"
#include "runtime/template_folder.h"

namespace attune {
namespace {

std::size_t row_count(const AttentionProblem& problem) {
  return static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q);
}

std::size_t element_count(const AttentionProblem& problem) {
  return row_count(problem) * static_cast<std::size_t>(problem.head_dim);
}

template <typename T>
T read(Device& device, DevicePointer from) {
  T value;
  device.copy_from_device(&value, from, sizeof(value));
  return value;
}

std::vector<double> read_doubles(Device& device, const DeviceBuffer& buffer) {
  std::vector<double> values(buffer.bytes() / sizeof(double));
  device.copy_from_device(values.data(), buffer.pointer(), buffer.bytes());
  return values;
}

}  // namespace

std::size_t DeviceReference::bytes_of(const AttentionProblem& problem) {
  return sizeof(double) * (2 * element_count(problem) + row_count(problem));
}

ReferenceForward DeviceReference::to_host(Device& device) const {
  return {read_doubles(device, o), lse, read_doubles(device, weight)};
}

DeviceReference make_device_reference(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                      const ForwardTensors& tensors) {
  const KernelPlan plan = generate_reference(problem, device->spec(), runtime_templates(), device->target());
  const std::size_t bytes = element_count(problem) * sizeof(double);
  DeviceReference reference{DeviceBuffer(device, bytes), DeviceBuffer(device, bytes), {}};
  const DeviceBuffer lse(device, row_count(problem) * sizeof(double));
  ArgumentValues outputs;
  outputs.o_fp64 = reference.o.pointer();
  outputs.lse_fp64 = lse.pointer();
  outputs.weight_fp64 = reference.weight.pointer();
  for (const KernelLaunch& launch : plan.launches) {
    const auto kernel = device->compile(launch);
    PackedArguments arguments;
    pack_arguments(launch, problem, tensors, outputs, *device, arguments);
    device->launch(*kernel, launch.grid_x(problem), arguments.data.data(), arguments.bytes, nullptr);
    device->synchronize(nullptr);
  }
  reference.lse = read_doubles(*device, lse);
  return reference;
}

struct DeviceOracle::Kernel {
  KernelLaunch launch;
  std::shared_ptr<const CompiledKernel> compiled;

  Kernel(Device& device, KernelLaunch with) : launch(std::move(with)), compiled(device.compile(launch)) {}
};

std::size_t DeviceOracle::scratch_bytes() { return kMaxOracleCtas * sizeof(ErrorSummary); }

DeviceOracle::DeviceOracle(std::shared_ptr<Device> device, const AttentionProblem& problem)
    : device_(std::move(device)), problem_(problem), partials_(device_, scratch_bytes()) {}
DeviceOracle::~DeviceOracle() = default;

void DeviceOracle::launch(const Kernel& kernel, const ForwardTensors& tensors, const ArgumentValues& values,
                          std::uint32_t grid) {
  PackedArguments arguments;
  pack_arguments(kernel.launch, problem_, tensors, values, *device_, arguments);
  device_->launch(*kernel.compiled, grid, arguments.data.data(), arguments.bytes, nullptr);
  device_->synchronize(nullptr);
}

template <typename Partial>
std::vector<Partial> DeviceOracle::read_partials(std::uint32_t count) {
  std::vector<Partial> partials(count);
  device_->copy_from_device(partials.data(), partials_.pointer(), partials.size() * sizeof(Partial));
  return partials;
}

OutputErrors DeviceOracle::compare_o(const DeviceReference& reference, const TensorView& o) {
  if (!comparison_) {
    comparison_ = std::make_unique<Kernel>(
        *device_, generate_comparison(problem_, device_->spec(), runtime_templates(), device_->target()));
  }
  const OutputBounds bounds = bounds_of(problem_.dtype);
  ArgumentValues values;
  values.o_fp64 = reference.o.pointer();
  values.weight_fp64 = reference.weight.pointer();
  values.unit_roundoff = bounds.unit_roundoff;
  values.smallest_step = bounds.smallest_step;
  values.partials = partials_.pointer();
  ForwardTensors tensors;
  tensors.o = o;
  const std::uint32_t grid = comparison_->launch.grid_x(problem_);
  launch(*comparison_, tensors, values, grid);

  ErrorSummary summary;
  for (const ErrorSummary& partial : read_partials<ErrorSummary>(grid)) summary.merge(partial);
  return errors_of_o(problem_, summary, [&](std::int64_t index) {
    const auto at = static_cast<std::uint64_t>(index) * sizeof(double);
    const auto offset = static_cast<std::uint64_t>(offset_of_element(problem_, o, index)) * sizeof(std::uint16_t);
    const auto bits = read<std::uint16_t>(*device_, reinterpret_cast<DevicePointer>(o.data) + offset);
    const auto ref = read<double>(*device_, reference.o.pointer() + at);
    const auto weight = read<double>(*device_, reference.weight.pointer() + at);
    return ComparedElement{to_double(problem_.dtype, bits), ref, bounds.of_element(ref, weight)};
  });
}

std::uint64_t DeviceOracle::checksum(DevicePointer elements, std::int64_t count) {
  if (!checksum_) {
    checksum_ =
        std::make_unique<Kernel>(*device_, generate_checksum(device_->spec(), runtime_templates(), device_->target()));
  }
  ArgumentValues values;
  values.elements = elements;
  values.element_count = count;
  values.partials = partials_.pointer();
  const std::uint32_t grid = grid_of_elements(count);
  launch(*checksum_, {}, values, grid);
  std::uint64_t sum = 0;
  for (const std::uint64_t partial : read_partials<std::uint64_t>(grid)) sum += partial;
  return sum;
}

void DeviceOracle::fill_random_normal(DevicePointer elements, std::int64_t count, std::uint64_t seed,
                                      std::int64_t copies, std::int64_t copy_stride) {
  if (!random_normal_) {
    random_normal_ = std::make_unique<Kernel>(
        *device_, generate_random_normal(problem_.dtype, device_->spec(), runtime_templates(), device_->target()));
  }
  ArgumentValues values;
  values.elements = elements;
  values.element_count = count;
  values.seed = seed;
  values.copies = copies;
  values.copy_stride = copy_stride;
  launch(*random_normal_, {}, values, grid_of_elements(count));
}

}  // namespace attune
