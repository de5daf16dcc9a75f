#include "runtime/oracle/device_oracle.h"

#include <utility>

#include "generator/generate.h"
#include "generator/oracle/oracle_kernels.h"
#include "runtime/call/argument_packer.h"
#include "runtime/oracle/sink_gradient.h"
#include "runtime/system/template_folder.h"

namespace attune {
namespace {

std::size_t row_count(const AttentionProblem& problem) {
  return static_cast<std::size_t>(operand_shape(problem, Operand::lse).elements());
}

std::size_t element_count(const AttentionProblem& problem) {
  return static_cast<std::size_t>(operand_shape(problem, Operand::o).elements());
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

std::vector<float> read_floats(Device& device, const TensorView& tensor, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  device.copy_from_device(values.data(), reinterpret_cast<DevicePointer>(tensor.data), values.size() * sizeof(float));
  return values;
}

// Where the reference kernel of forward leaves its results.
struct ForwardResults {
  DeviceBuffer o, weight, lse;

  ForwardResults(const std::shared_ptr<Device>& device, const AttentionProblem& problem)
      : o(device, element_count(problem) * sizeof(double)),
        weight(device, o.bytes()),
        lse(device, row_count(problem) * sizeof(double)) {}
  ArgumentValues values() const {
    ArgumentValues values;
    values.set(kOFp64, o.pointer());
    values.set(kLseFp64, lse.pointer());
    values.set(kWeightFp64, weight.pointer());
    return values;
  }
};

void run(Device& device, const KernelLaunch& launch, const AttentionProblem& problem, const Tensors& tensors,
         const ArgumentValues& values) {
  const auto kernel = device.compile(launch);
  PackedArguments arguments;
  pack_arguments(launch, problem, tensors, values, device, arguments);
  device.launch(*kernel, launch.grid_x(problem), arguments.data.data(), arguments.bytes, nullptr);
  device.synchronize(nullptr);
}

ForwardResults run_reference(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                             const Tensors& tensors) {
  const AttentionProblem forward = forward_of(problem);
  ForwardResults results(device, forward);
  const KernelPlan plan = generate_reference(forward, device->spec(), runtime_templates(), device->target());
  for (const KernelLaunch& launch : plan.launches) run(*device, launch, forward, tensors, results.values());
  return results;
}

// A problem whose O has the shape of the operand.
AttentionProblem with_shape_of(const AttentionProblem& problem, Operand operand) {
  const OperandShape shape = operand_shape(problem, operand);
  AttentionProblem changed = problem;
  changed.batch = shape.batch;
  changed.heads_q = shape.heads;
  changed.seq_q = shape.rows;
  changed.head_dim = shape.columns;
  changed.unpack();
  changed.lengths = Lengths::whole;
  return changed;
}

double sum_of_noise(Device& device, const DeviceBuffer& partials) {
  double sum = 0;
  for (const double noise : read_doubles(device, partials)) sum += noise;
  return sum;
}

}  // namespace

std::size_t DeviceReference::bytes_of(const AttentionProblem& problem) {
  return sizeof(double) * (2 * element_count(problem) + row_count(problem));
}

ReferenceForward DeviceReference::to_host(Device& device) const {
  return {read_doubles(device, o), lse, read_doubles(device, weight)};
}

DeviceReference make_device_reference(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                      const Tensors& tensors) {
  ForwardResults results = run_reference(device, problem, tensors);
  std::vector<double> lse = read_doubles(*device, results.lse);
  return {std::move(results.o), std::move(results.weight), std::move(lse)};
}

ReferenceGradient DeviceGradient::to_host(Device& device) const {
  const std::vector<double> both = read_doubles(device, buffer);
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  return {{both.begin(), middle}, {middle, both.end()}, noise_squares};
}

std::size_t DeviceGradients::bytes_of(const AttentionProblem& problem) {
  const AttentionProblem of_keys = with_shape_of(problem, Operand::k);
  const std::size_t of_bias =
      problem.bias_gradient ? static_cast<std::size_t>(operand_shape(problem, Operand::d_bias).elements()) : 0;
  const std::size_t gradients = 2 * element_count(problem) + 4 * element_count(of_keys) + 2 * of_bias;
  return DeviceReference::bytes_of(problem) +
         sizeof(double) * (gradients + (kRowStatistics + 1) * row_count(problem) + 2 * row_count(of_keys));
}

ReferenceBackward DeviceGradients::to_host(Device& device) const {
  return {d_q.to_host(device), d_k.to_host(device), d_v.to_host(device), d_sinks,
          d_bias.buffer.bytes() == 0 ? ReferenceGradient() : d_bias.to_host(device)};
}

DeviceGradients make_device_gradients(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                      const Tensors& tensors) {
  const AttentionProblem of_keys = with_shape_of(problem, Operand::k);
  const ForwardResults forward = run_reference(device, problem, tensors);
  const auto doubles = [&](std::size_t count) { return DeviceBuffer(device, count * sizeof(double)); };
  const DeviceBuffer statistics = doubles(kRowStatistics * row_count(problem)),
                     noise_of_queries = doubles(row_count(problem)), noise_of_keys = doubles(2 * row_count(of_keys));
  DeviceGradients result{{doubles(2 * element_count(problem))},
                         {doubles(2 * element_count(of_keys))},
                         {doubles(2 * element_count(of_keys))},
                         {},
                         {}};
  const OutputBounds bounds = gradient_bounds_of(problem.dtype);
  ArgumentValues values = forward.values();
  values.set(kRowStatisticsFp64, statistics.pointer());
  values.set(kDqFp64, result.d_q.values());
  values.set(kDkFp64, result.d_k.values());
  values.set(kDvFp64, result.d_v.values());
  values.set(kUnitRoundoff, bounds.unit_roundoff);
  values.set(kSmallestStep, bounds.smallest_step);
  for (const KernelLaunch& launch :
       generate_backward_reference(problem, device->spec(), runtime_templates(), device->target())) {
    values.set(kPartials, (launch.tile_rows == TileRows::queries ? noise_of_queries : noise_of_keys).pointer());
    run(*device, launch, problem, tensors, values);
  }
  if (problem.bias_gradient) {
    const KernelLaunch launch = generate_bias_reference(problem, device->spec(), runtime_templates(), device->target());
    const DeviceBuffer noise_of_tiles = doubles(launch.tiles(problem));
    result.d_bias.buffer = doubles(2 * static_cast<std::size_t>(operand_shape(problem, Operand::d_bias).elements()));
    values.set(kDbiasFp64, result.d_bias.values());
    values.set(kPartials, noise_of_tiles.pointer());
    run(*device, launch, problem, tensors, values);
    result.d_bias.noise_squares = sum_of_noise(*device, noise_of_tiles);
  }
  result.d_q.noise_squares = sum_of_noise(*device, noise_of_queries);
  const std::vector<double> of_both = read_doubles(*device, noise_of_keys);
  for (std::size_t key = 0; key < row_count(of_keys); ++key) {
    result.d_k.noise_squares += of_both[2 * key];
    result.d_v.noise_squares += of_both[2 * key + 1];
  }
  if (problem.sink) {
    const std::vector<double> lse = read_doubles(*device, forward.lse), of_rows = read_doubles(*device, statistics);
    std::vector<double> columns[kRowStatistics];
    for (std::size_t i = 0; i < of_rows.size(); ++i) columns[i % kRowStatistics].push_back(of_rows[i]);
    const std::vector<float> sinks = read_floats(*device, tensors[Operand::sinks], problem.heads_q);
    result.d_sinks = sink_gradient(problem, sinks, {lse, columns[0], columns[1], columns[2]});
  }
  return result;
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

void DeviceOracle::launch(const Kernel& kernel, const AttentionProblem& problem, const Tensors& tensors,
                          const ArgumentValues& values, std::uint32_t grid) {
  PackedArguments arguments;
  pack_arguments(kernel.launch, problem, tensors, values, *device_, arguments);
  device_->launch(*kernel.compiled, grid, arguments.data.data(), arguments.bytes, nullptr);
  device_->synchronize(nullptr);
}

template <typename Partial>
std::vector<Partial> DeviceOracle::read_partials(std::uint32_t count) {
  std::vector<Partial> partials(count);
  device_->copy_from_device(partials.data(), partials_.pointer(), partials.size() * sizeof(Partial));
  return partials;
}

OutputErrors DeviceOracle::compare(const ComparedOutput& output, const TensorView& tensor, DevicePointer reference,
                                   DevicePointer weight) {
  const OperandShape shape = operand_shape(problem_, output.shape);
  std::unique_ptr<Kernel>& comparison = output.shape == Operand::d_bias ? bias_comparison_ : comparison_;
  if (!comparison) {
    comparison = std::make_unique<Kernel>(
        *device_, generate_comparison(shape, device_->spec(), runtime_templates(), device_->target()));
  }
  const AttentionProblem problem = with_shape_of(problem_, output.shape);
  ArgumentValues values;
  values.set(kOFp64, reference);
  values.set(kWeightFp64, weight);
  values.set(kUnitRoundoff, output.bounds.unit_roundoff);
  values.set(kStoredRoundoff, output.bounds.stored_roundoff);
  values.set(kSmallestStep, output.bounds.smallest_step);
  values.set(kPartials, partials_.pointer());
  Tensors tensors;
  tensors[Operand::o] = tensor;
  const std::uint32_t grid = comparison->launch.grid_x(problem);
  launch(*comparison, problem, tensors, values, grid);

  ErrorSummary summary;
  for (const ErrorSummary& partial : read_partials<ErrorSummary>(grid)) summary.merge(partial);
  return errors_of(problem_, output, summary, [&](std::int64_t index) {
    const auto at = static_cast<std::uint64_t>(index) * sizeof(double);
    const auto bytes = static_cast<std::uint64_t>(size_of(shape.element));
    const DevicePointer from = reinterpret_cast<DevicePointer>(tensor.data) +
                               static_cast<std::uint64_t>(offset_of_element(problem, tensor, index)) * bytes;
    const double value = shape.element == ElementType::fp32
                             ? read<float>(*device_, from)
                             : to_double(problem_.dtype, read<std::uint16_t>(*device_, from));
    const auto ref = read<double>(*device_, reference + at), relative_to = read<double>(*device_, weight + at);
    return ComparedElement{value, ref, output.bounds.of_element(ref, relative_to)};
  });
}

OutputErrors DeviceOracle::compare_o(const DeviceReference& reference, const TensorView& o) {
  return compare(compared_o(problem_), o, reference.o.pointer(), reference.weight.pointer());
}

std::vector<OutputErrors> DeviceOracle::compare_gradients(const DeviceGradients& reference, const Tensors& tensors) {
  const auto of = [&](const char* name, Operand shape, const DeviceGradient& gradient, const TensorView& tensor) {
    return compare(compared_gradient(problem_, name, shape, gradient.noise_squares), tensor, gradient.values(),
                   gradient.weights());
  };
  std::vector<OutputErrors> errors = {of("dq", Operand::o, reference.d_q, tensors[Operand::d_q]),
                                      of("dk", Operand::k, reference.d_k, tensors[Operand::d_k]),
                                      of("dv", Operand::k, reference.d_v, tensors[Operand::d_v])};
  if (problem_.sink) {
    errors.push_back(
        compare_sinks(reference.d_sinks, read_floats(*device_, tensors[Operand::d_sinks], problem_.heads_q)));
  }
  if (problem_.bias_gradient)
    errors.push_back(of("dbias", Operand::d_bias, reference.d_bias, tensors[Operand::d_bias]));
  return errors;
}

std::uint64_t DeviceOracle::checksum(DevicePointer elements, std::int64_t count) {
  if (!checksum_) {
    checksum_ =
        std::make_unique<Kernel>(*device_, generate_checksum(device_->spec(), runtime_templates(), device_->target()));
  }
  ArgumentValues values;
  values.set(kElements, elements);
  values.set(kElementCount, count);
  values.set(kPartials, partials_.pointer());
  const std::uint32_t grid = grid_of_elements(count);
  launch(*checksum_, problem_, {}, values, grid);
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
  values.set(kElements, elements);
  values.set(kElementCount, count);
  values.set(kSeed, seed);
  values.set(kCopies, copies);
  values.set(kCopyStride, copy_stride);
  launch(*random_normal_, problem_, {}, values, grid_of_elements(count));
}

}  // namespace attune
