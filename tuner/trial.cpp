#include "tuner/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "generator/generate.h"
#include "runtime/oracle/checksum.h"
#include "runtime/oracle/device_oracle.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/template_folder.h"
#include "tuner/cold_timing.h"

namespace attune {
namespace {

constexpr std::uint8_t kGuardPattern = 0xa5;
constexpr std::uint8_t kNotANumber = 0xff;  // repeated: NaN in fp16, bf16 and fp32
constexpr std::size_t kInputMargin = 256;   // NaN on each side of an input
// Launches before each timing, which would otherwise run at the clocks of a GPU that has rested since the last one;
// more before the first. The power cap takes hold after some 20 ms.
constexpr double kFirstWarmUpSeconds = 0.3, kWarmUpSeconds = 0.05;
constexpr double kEvictingFactor = 2;      // copies of the inputs exceed the L2 by this
constexpr double kSelfEvictingFactor = 4;  // inputs this much larger than the L2 need no copies
constexpr std::size_t kMaxCopies = 4096;
constexpr std::size_t kPieceBytes = 1u << 20;
constexpr std::size_t kMemoryReserve = 256u << 20;  // left to the driver, local memory and other programs

std::size_t element_count(const AttentionProblem& p, Operand operand) {
  const bool of_queries = operand == Operand::q || operand == Operand::o || operand == Operand::lse;
  const std::int64_t heads = of_queries ? p.heads_q : p.heads_kv, rows = of_queries ? p.seq_q : p.seq_kv;
  return static_cast<std::size_t>(p.batch * heads * rows * (operand == Operand::lse ? 1 : p.head_dim));
}

std::size_t element_bytes(const AttentionProblem& p, Operand operand) {
  return operand == Operand::lse ? sizeof(float) : static_cast<std::size_t>(size_of(p.dtype));
}

// A tensor in device memory, one or more times, each between margins:   | margin | tensor | margin |   ...
class TensorCopies {
 public:
  TensorCopies() = default;
  // `shift`: bytes that the tensors start beyond a multiple of 256.
  TensorCopies(std::size_t bytes, std::size_t margin, std::size_t shift, std::size_t copies)
      : bytes_(bytes), margin_(margin), shift_(shift), copies_(copies), stride_(2 * margin + shift + bytes) {
    if (copies > 1) stride_ = (stride_ + 255) / 256 * 256;
  }
  std::size_t total_bytes() const { return stride_ * copies_; }
  void allocate(const std::shared_ptr<Device>& device) { buffer_ = DeviceBuffer(device, total_bytes()); }

  std::size_t bytes() const { return bytes_; }
  DevicePointer buffer() const { return buffer_.pointer(); }
  std::size_t tensor_offset() const { return margin_ + shift_; }
  /// First byte of the margin before a copy; the copy's region, margins included, has region_bytes().
  DevicePointer region(std::size_t copy) const { return buffer_.pointer() + copy * stride_; }
  std::size_t region_bytes() const { return 2 * margin_ + shift_ + bytes_; }
  DevicePointer tensor(std::size_t copy) const { return region(copy) + tensor_offset(); }
  std::size_t stride() const { return stride_; }
  std::size_t copies() const { return copies_; }

 private:
  std::size_t bytes_ = 0, margin_ = 0, shift_ = 0, copies_ = 0, stride_ = 0;
  DeviceBuffer buffer_;
};

// By all cores: one thread moves pageable memory at a fraction of the bus.
void copy_from_device(Device& device, void* to, DevicePointer from, std::size_t bytes) {
  const std::size_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  parallel_for(pieces, [&](std::size_t i) {
    device.copy_from_device(static_cast<std::uint8_t*>(to) + i * kPieceBytes, from + i * kPieceBytes,
                            std::min(kPieceBytes, bytes - i * kPieceBytes));
  });
}

// Elements of 16 bits, all of them.
std::vector<std::uint16_t> read_elements(Device& device, DevicePointer from, std::size_t bytes) {
  std::vector<std::uint16_t> elements(bytes / sizeof(std::uint16_t));
  copy_from_device(device, elements.data(), from, bytes);
  return elements;
}

OutputErrors broken(const std::string& name, std::string complaint) {
  OutputErrors errors;
  errors.name = name;
  errors.within = false;
  errors.relative = errors.max_abs = std::numeric_limits<double>::quiet_NaN();
  errors.complaint = std::move(complaint);
  return errors;
}

}  // namespace

std::optional<MeasurementStatus> status_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::infeasible_config:
    case ErrorCode::unsupported:
      return MeasurementStatus::infeasible;
    case ErrorCode::compile_failed:
    case ErrorCode::template_error:
      return MeasurementStatus::compile_failed;
    case ErrorCode::emulator:
      return MeasurementStatus::launch_failed;
    case ErrorCode::driver: {
      const std::string text = error.what();
      const bool memory =
          text.find("out of memory") != std::string::npos || text.find("OUT_OF_MEMORY") != std::string::npos;
      return memory ? MeasurementStatus::out_of_memory : MeasurementStatus::launch_failed;
    }
    case ErrorCode::invalid_argument:
    case ErrorCode::no_device:
    case ErrorCode::nvrtc_unavailable:
    case ErrorCode::io:
    case ErrorCode::database:
    case ErrorCode::internal:
      return std::nullopt;
  }
  return std::nullopt;
}

int default_spill_allowance(KernelFamily family) { return family == KernelFamily::sm80 ? 512 : 256; }

struct TrialBench::State {
  std::shared_ptr<Device> device;
  AttentionProblem problem;
  std::uint64_t seed;
  AttentionRuntime runtime;
  TensorCopies q, k, v, o, lse;
  std::array<std::uint64_t, 3> input_checksums{};
  std::unique_ptr<DeviceOracle> device_oracle;  // on a GPU
  std::optional<ReferenceForward> reference;
  std::optional<DeviceReference> device_reference;  // instead of `reference`
  std::array<std::uint64_t, 2> reference_checksums{};
  std::string no_memory;                          // why there are no tensors
  std::map<std::string, std::uint32_t> counters;  // of the last check
  double warm_up_seconds = kFirstWarmUpSeconds;   // before the next timing
  // Scratch that is kept from trial to trial: fresh memory costs more than what is done with it.
  std::vector<std::uint16_t> o_values;
  std::vector<float> lse_values;

  State(std::shared_ptr<Device> on, const AttentionProblem& asked, std::uint64_t with_seed)
      : device(std::move(on)), problem(asked), seed(with_seed), runtime(device, nullptr, runtime_templates()) {
    validate(problem);
    lay_out();
    try {
      no_memory = lacking_memory(device->can_time() ? DeviceOracle::scratch_bytes() : 0);
      if (!no_memory.empty()) return;
      if (device->can_time()) device_oracle = std::make_unique<DeviceOracle>(device, problem);
      for (TensorCopies* tensor : {&q, &k, &v, &o, &lse}) tensor->allocate(device);
    } catch (const Error& error) {
      if (status_of(error) != MeasurementStatus::out_of_memory) throw;
      no_memory = error.what();
      return;
    }
    upload(q, Operand::q);
    upload(k, Operand::k);
    upload(v, Operand::v);
    input_checksums = checksums_of_inputs();
  }

  void lay_out() {
    const auto bytes = [&](Operand operand) {
      return element_count(problem, operand) * element_bytes(problem, operand);
    };
    const std::size_t inputs = bytes(Operand::q) + bytes(Operand::k) + bytes(Operand::v);
    const auto l2 = static_cast<double>(device->spec().l2_bytes);
    std::size_t copies = 1;
    if (device->can_time() && static_cast<double>(inputs) < kSelfEvictingFactor * l2) {
      copies = std::min(kMaxCopies,
                        static_cast<std::size_t>(std::ceil(kEvictingFactor * l2 / static_cast<double>(inputs))) + 1);
    }
    // The emulator reports any access outside an allocation: there the margin would only hide it.
    const std::size_t margin = device->can_time() ? kInputMargin : 0;
    const std::size_t shift = problem.alignment == 16 ? 0 : static_cast<std::size_t>(problem.alignment);
    q = TensorCopies(bytes(Operand::q), margin, shift, copies);
    k = TensorCopies(bytes(Operand::k), margin, shift, copies);
    v = TensorCopies(bytes(Operand::v), margin, shift, copies);
    o = TensorCopies(bytes(Operand::o), kGuardBytes, shift, copies);
    lse = TensorCopies(bytes(Operand::lse), kGuardBytes, 0, copies);
  }

  // Asks before anything is taken: why there is no room, or nothing. `more`: bytes beside the tensors that are not
  // allocated yet.
  std::string lacking_memory(std::size_t more) {
    std::size_t wanted = more + (device->can_time() ? kMemoryReserve : 0);
    for (const TensorCopies* tensor : {&q, &k, &v, &o, &lse}) {
      if (tensor->buffer() == 0) wanted += tensor->total_bytes();
    }
    const std::size_t free = device->free_bytes();
    if (wanted <= free) return {};
    return fmt::format("{} needs {} MiB of memory on {}, {} MiB are free", canonical_text(problem), wanted >> 20,
                       device->description(), free >> 20);
  }

  void require_memory(std::size_t more) {
    const std::string reason = lacking_memory(more);
    if (!reason.empty()) throw Error(ErrorCode::driver, "out of memory: " + reason);
  }

  std::uint64_t seed_of(Operand operand) const { return 3 * seed + static_cast<std::uint64_t>(operand); }

  std::vector<std::uint16_t> values(Operand operand) const {
    return random_normal(problem.dtype, element_count(problem, operand), seed_of(operand));
  }

  void upload(const TensorCopies& tensor, Operand operand) {
    if (device_oracle) {
      device->fill(tensor.buffer(), kNotANumber, tensor.total_bytes());
      device_oracle->fill_random_normal(tensor.tensor(0), static_cast<std::int64_t>(element_count(problem, operand)),
                                        seed_of(operand), static_cast<std::int64_t>(tensor.copies()),
                                        static_cast<std::int64_t>(tensor.stride() / sizeof(std::uint16_t)));
      return;
    }
    const std::vector<std::uint16_t> host = values(operand);
    std::vector<std::uint8_t> image(tensor.total_bytes(), kNotANumber);
    for (std::size_t copy = 0; copy < tensor.copies(); ++copy) {
      std::memcpy(image.data() + copy * tensor.stride() + tensor.tensor_offset(), host.data(), tensor.bytes());
    }
    device->copy_to_device(tensor.buffer(), image.data(), image.size());
  }

  // Of the first copies of q, k and v, margins included.
  std::array<std::uint64_t, 3> checksums_of_inputs() {
    const auto sum = [&](const TensorCopies& tensor) {
      const DevicePointer region = tensor.region(0);
      const std::size_t bytes = tensor.region_bytes();
      if (device_oracle) return device_oracle->checksum(region, static_cast<std::int64_t>(bytes / 2));
      return checksum(read_elements(*device, region, bytes));
    };
    return {sum(q), sum(k), sum(v)};
  }

  std::array<std::uint64_t, 2> checksums_of_reference() {
    const auto sum = [&](const DeviceBuffer& buffer) {
      return device_oracle->checksum(buffer.pointer(), static_cast<std::int64_t>(buffer.bytes() / 2));
    };
    return {sum(device_reference->o), sum(device_reference->weight)};
  }

  ForwardTensors tensors(std::size_t copy) const {
    ForwardTensors result;
    const auto view = [&](const TensorCopies& tensor, Operand operand) {
      TensorView packed = packed_view(problem, operand);
      packed.data = reinterpret_cast<const void*>(tensor.tensor(copy));
      return packed;
    };
    result.q = view(q, Operand::q);
    result.k = view(k, Operand::k);
    result.v = view(v, Operand::v);
    result.o = view(o, Operand::o);
    result.lse = reinterpret_cast<float*>(lse.tensor(copy));
    return result;
  }

  void require_tensors() const {
    if (!no_memory.empty()) throw Error(ErrorCode::driver, "out of memory: " + no_memory);
  }

  void make_reference() {
    if (reference || device_reference) return;
    require_tensors();
    if (count_flops(problem) <= kCpuOracleFlops || !device->can_time()) {
      reference = reference_forward(problem, values(Operand::q), values(Operand::k), values(Operand::v));
      return;
    }
    require_memory(DeviceReference::bytes_of(problem));
    device_reference = make_device_reference(device, problem, tensors(0));
    reference_checksums = checksums_of_reference();
  }

  static void poison(Device& device, const TensorCopies& tensor) {
    device.fill(tensor.region(0), kGuardPattern, tensor.region_bytes());
    device.fill(tensor.tensor(0), kNotANumber, tensor.bytes());
  }

  // The bands on both sides of the first copy; complaints are appended to `errors`.
  void check_guards(const TensorCopies& tensor, const char* name, std::vector<OutputErrors>& errors) {
    const auto changed = [](std::uint8_t byte) { return byte != kGuardPattern; };
    const DevicePointer end = tensor.tensor(0) + tensor.bytes();
    std::vector<std::uint8_t> before(tensor.tensor_offset());
    std::vector<std::uint8_t> after(tensor.region_bytes() - tensor.tensor_offset() - tensor.bytes());
    device->copy_from_device(before.data(), tensor.region(0), before.size());
    device->copy_from_device(after.data(), end, after.size());
    const auto first = std::find_if(before.begin(), before.end(), changed);
    const auto last = std::find_if(after.rbegin(), after.rend(), changed);
    if (first != before.end()) {
      errors.push_back(broken("guards", fmt::format("the kernel wrote up to {} bytes before the first element of {}",
                                                    before.end() - first, name)));
    }
    if (last != after.rend()) {
      errors.push_back(broken("guards", fmt::format("the kernel wrote up to {} bytes beyond the last element of {}",
                                                    after.rend() - last, name)));
    }
  }

  // The first copy, of elements T.
  template <typename T>
  void read_back(const TensorCopies& tensor, std::vector<T>& values) {
    values.resize(tensor.bytes() / sizeof(T));
    copy_from_device(*device, values.data(), tensor.tensor(0), tensor.bytes());
  }

  ForwardErrors compare_outputs() {
    read_back(lse, lse_values);
    if (!device_reference) {
      read_back(o, o_values);
      return compare_forward(problem, *reference, o_values, lse_values);
    }
    ForwardErrors errors;
    errors.outputs.push_back(device_oracle->compare_o(*device_reference, tensors(0).o));
    errors.outputs.push_back(compare_lse(problem, device_reference->lse, lse_values));
    return errors;
  }

  DeviceBuffer make_workspace(std::size_t bytes) {
    if (bytes == 0) return {};
    if (device_reference && !lacking_memory(bytes).empty()) {
      reference = device_reference->to_host(*device);
      device_reference.reset();
    }
    require_memory(bytes);
    DeviceBuffer workspace(device, bytes);
    device->fill(workspace.pointer(), kNotANumber, bytes);
    return workspace;
  }

  ForwardErrors check(const PreparedAttention& prepared) {
    make_reference();
    const DeviceBuffer workspace = make_workspace(prepared.plan.counted_workspace_bytes);
    poison(*device, o);
    poison(*device, lse);
    runtime.launch(prepared, problem, tensors(0), reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(),
                   nullptr);
    device->synchronize(nullptr);
    counters.clear();
    for (const WorkspaceCounter& counter : prepared.plan.counters)
      device->copy_from_device(&counters[counter.name], workspace.pointer() + counter.offset, sizeof(std::uint32_t));

    ForwardErrors errors = compare_outputs();
    std::vector<OutputErrors> also;
    check_guards(o, "o", also);
    check_guards(lse, "lse", also);
    if (checksums_of_inputs() != input_checksums) {
      also.push_back(broken("inputs", "the kernel wrote to its inputs q, k or v"));
      for (const auto& [tensor, operand] : {std::pair{&q, Operand::q}, {&k, Operand::k}, {&v, Operand::v}})
        upload(*tensor, operand);
    }
    // A wild write may reach what the next kernels are compared with.
    if (device_reference && checksums_of_reference() != reference_checksums) {
      also.push_back(broken("reference", "the kernel wrote to memory that is none of its tensors"));
      device_reference.reset();
    }
    errors.outputs.insert(errors.outputs.end(), also.begin(), also.end());
    return errors;
  }

  // `prepared` and `workspace` outlive the work.
  TimedWork timed_work(const PreparedAttention& prepared, const DeviceBuffer& workspace) {
    const auto launch = [this, &prepared, &workspace](const AttentionProblem& asked, const ForwardTensors& with) {
      runtime.launch(prepared, asked, with, reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(), nullptr);
    };
    TimedWork work;
    work.launch = [this, launch](std::uint64_t index) { launch(problem, tensors(index % q.copies())); };
    // The same inputs and outputs for every entry of a large batch: long, and small in the L2.
    work.occupy = [this, launch](std::int64_t factor) {
      AttentionProblem long_problem = problem;
      long_problem.batch *= factor;
      ForwardTensors repeated = tensors(0);
      for (TensorView* view : {&repeated.q, &repeated.k, &repeated.v, &repeated.o}) view->stride_batch = 0;
      repeated.lse = nullptr;
      launch(long_problem, repeated);
    };
    const std::int64_t tiles = std::max<std::int64_t>(1, prepared.plan.launches.front().query_tiles(problem));
    work.max_factor = std::max<std::int64_t>(1, (std::int64_t{1} << 30) / (problem.batch * problem.heads_q * tiles));
    return work;
  }

  std::string protocol() const {
    return q.copies() == 1 ? "cold by size: inputs exceed 4 L2; full queue, events"
                           : fmt::format("cold by rotation: {} copies, 2 L2; full queue, events", q.copies());
  }

  void time(const PreparedAttention& prepared, const TrialOptions& options, Measurement& m) {
    const DeviceBuffer workspace = make_workspace(prepared.plan.workspace_bytes);
    TimingPlan plan;
    plan.sample_seconds = options.sample_seconds;
    plan.min_samples = options.min_samples;
    plan.hopeless_us = options.hopeless_us;
    plan.batch_microseconds = kBatchMicroseconds;
    plan.cuda_ordinal = options.cuda_ordinal;
    plan.warm_up_seconds = std::exchange(warm_up_seconds, kWarmUpSeconds);
    const Timing timing = time_cold(device, timed_work(prepared, workspace), plan);
    m.samples_us = timing.samples_us;
    m.clocks_mhz = timing.clocks_mhz;
    m.reason = timing.complaint;
    m.summarize();
    m.protocol = protocol();
  }

  RaceTimes race(const std::vector<KernelConfig>& configs, const RaceOptions& options) {
    require_tensors();
    std::vector<std::shared_ptr<const PreparedAttention>> prepared;
    std::vector<DeviceBuffer> workspaces;
    for (const KernelConfig& config : configs) {
      prepared.push_back(runtime.prepare(problem, config));
      workspaces.push_back(make_workspace(prepared.back()->plan.workspace_bytes));
    }
    std::vector<TimedWork> works;
    for (std::size_t i = 0; i < configs.size(); ++i) works.push_back(timed_work(*prepared[i], workspaces[i]));
    TurnsPlan plan;
    plan.seconds = options.seconds;
    plan.min_rounds = options.min_rounds;
    plan.batch_microseconds = kBatchMicroseconds;
    plan.cuda_ordinal = options.cuda_ordinal;
    RaceTimes times;
    for (Timing& timing : time_in_turns(device, works, plan)) {
      times.samples_us.push_back(std::move(timing.samples_us));
      times.clocks_mhz.push_back(std::move(timing.clocks_mhz));
      times.complaint = timing.complaint;
    }
    times.protocol = fmt::format("{}; {} configs in turns", protocol(), configs.size());
    return times;
  }

  // Whether the process can still use the device after a driver's error.
  bool device_works() {
    try {
      device->synchronize(nullptr);
      std::uint8_t byte = 0;
      device->copy_from_device(&byte, o.region(0), 1);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void record_resources(const PreparedAttention& prepared, const TrialOptions& options, Measurement& m) {
    std::string advisory;
    for (const auto& kernel : prepared.kernels) {
      const KernelResources& resources = kernel->resources();
      m.registers = std::max(m.registers, resources.registers);
      m.spill_bytes = std::max(m.spill_bytes, resources.spill_bytes);
      m.shared_bytes = std::max(m.shared_bytes, resources.shared_bytes);
      m.compile_ms += resources.compile_ms;
      if (advisory.empty() && !resources.advisories.empty()) advisory = resources.advisories.front();
    }
    const int allowance = options.spill_allowance_bytes.value_or(default_spill_allowance(m.config.family));
    if (m.spill_bytes > allowance) {
      m.status = MeasurementStatus::spilled;
      m.reason = fmt::format("{} bytes of registers are spilled per thread, {} are allowed", m.spill_bytes, allowance);
    } else if (!advisory.empty()) {
      m.status = MeasurementStatus::serialized;
      m.reason = advisory;
    }
  }

  void try_config(const KernelConfig& config, const TrialOptions& options, Measurement& m) {
    const auto prepared = runtime.prepare(problem, config);
    record_resources(*prepared, options, m);
    if (m.status != MeasurementStatus::ok) return;
    if (options.check) {
      const ForwardErrors errors = check(*prepared);
      for (const OutputErrors& output : errors.outputs) {
        if (output.name == "o") m.error_o = output.relative;
        if (output.name == "lse") m.error_lse = output.max_abs;
        if (!output.within && m.reason.empty()) m.reason = fmt::format("{}: {}", output.name, output.complaint);
      }
      if (!errors.within()) {
        m.status = MeasurementStatus::wrong_result;
        return;
      }
    }
    if (options.time && device->can_time()) time(*prepared, options, m);
  }
};

TrialBench::TrialBench(std::shared_ptr<Device> device, const AttentionProblem& problem, std::uint64_t seed)
    : state_(std::make_unique<State>(std::move(device), problem, seed)) {}
TrialBench::~TrialBench() = default;

Measurement TrialBench::run(const KernelConfig& config, const TrialOptions& options) {
  Measurement m;
  m.problem = state_->problem;
  m.config = config;
  m.device = state_->device->spec().name;
  m.sm_count = state_->device->spec().sm_count;
  m.rigor = options.time && state_->device->can_time() ? Rigor::measure : Rigor::estimate;
  m.templates_hash = templates_hash(config.family, runtime_templates(), state_->device->target());
  const Toolchain toolchain = state_->device->toolchain();
  m.compiler = toolchain.compiler;
  m.driver = toolchain.driver;
  m.attune_version = attune_version();
  m.created_at = utc_now();
  if (!state_->no_memory.empty()) {
    m.status = MeasurementStatus::out_of_memory;
    m.reason = state_->no_memory;
    return m;
  }
  try {
    state_->try_config(config, options, m);
  } catch (const Error& error) {
    const auto status = status_of(error);
    if (!status || (error.code() == ErrorCode::driver && !state_->device_works())) throw;
    m.status = *status;
    m.reason = error.what();
  }
  return m;
}

RaceTimes TrialBench::race(const std::vector<KernelConfig>& configs, const RaceOptions& options) {
  if (!state_->device->can_time())
    throw Error(ErrorCode::unsupported, state_->device->description() + " cannot time: there is nothing to race");
  return state_->race(configs, options);
}

ForwardErrors TrialBench::check(const PreparedAttention& prepared) { return state_->check(prepared); }

std::shared_ptr<const PreparedAttention> TrialBench::prepare(const KernelConfig& config) {
  return state_->runtime.prepare(state_->problem, config);
}

const std::map<std::string, std::uint32_t>& TrialBench::counters() const { return state_->counters; }

void TrialBench::make_reference() { state_->make_reference(); }

}  // namespace attune
