#include "tuner/trial/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "generator/families/kernel_family.h"
#include "generator/generate.h"
#include "generator/problem/sequence_lengths.h"
#include "runtime/oracle/device_oracle.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/system/template_folder.h"
#include "tuner/trial/cold_timing.h"
#include "tuner/trial/default_forward.h"
#include "tuner/trial/trial_inputs.h"
#include "tuner/trial/trial_reference.h"
#include "tuner/trial/trial_tensors.h"

namespace attune {
namespace {

// Launches before each timing, which would otherwise run at the clocks of a GPU that has rested since the last one;
// more before the first. The power cap takes hold after some 20 ms.
constexpr double kFirstWarmUpSeconds = 0.3, kWarmUpSeconds = 0.05;
constexpr std::size_t kMemoryReserve = 256u << 20;  // left to the driver, local memory and other programs

AttentionProblem validated(const AttentionProblem& problem) {
  validate(problem);
  return simplest_mask(problem);
}

// What keeps the queue full where it is of packed sequences, of which a call has as many as it says: all rows as one,
// without tensors of pairs, which have elements for the pairs of a sequence.
AttentionProblem one_sequence(const AttentionProblem& problem) {
  AttentionProblem one = problem;
  if (problem.packed) {
    one.unpack();
    one.batch = 1;
    one.lengths = Lengths::whole;
    one.bias = one.attention_mask = PairTensor::none;
    one.bias_fp32 = one.bias_gradient = false;
  }
  return one;
}

TermValues merged(TermValues terms, const AttentionProblem& problem, const TermValues& given) {
  for (const Operand operand : term_inputs_of(problem))
    if (!given.bytes(operand).empty()) terms.set(operand, given.of<std::byte>(operand));
  return terms;
}

}  // namespace

struct TrialBench::State {
  std::shared_ptr<Device> device;
  AttentionProblem problem;
  std::uint64_t seed;
  const bool times_used;       // whether the checked lengths are timed, too
  const TermValues terms;      // what the problem's read
  DeviceBuffer whole_lengths;  // of such: the lengths of queries, then of keys, that are timed instead
  DeviceBuffer timed_begins;   // of packed ones: where queries, then keys, of sequences begin
  AttentionRuntime runtime;
  TrialTensors tensors;
  std::vector<std::uint64_t> input_checksums;
  std::unique_ptr<DeviceOracle> device_oracle;  // on a GPU
  DefaultForward forward;                       // where O and LSE of a backward problem come from there
  bool holds_timed_forward = false;             // whether these are of the lengths that are timed
  DefaultForward occupying;                     // keeps the queue full where what is timed cannot
  std::unique_ptr<TrialReference> reference;
  std::vector<std::uint64_t> reference_checksums;
  std::string no_memory;                         // why there are no tensors
  double warm_up_seconds = kFirstWarmUpSeconds;  // before the next timing

  State(std::shared_ptr<Device> on, const AttentionProblem& asked, std::uint64_t with_seed, const TermValues& given)
      : device(std::move(on)),
        problem(validated(asked)),
        seed(with_seed),
        times_used(!given.bytes(Operand::seqused_q).empty() || !given.bytes(Operand::seqused_kv).empty()),
        terms(merged(random_terms(problem, with_seed), problem, given)),
        runtime(device, nullptr, runtime_templates()),
        tensors(device, problem),
        forward(device, runtime, problem),
        occupying(device, runtime, one_sequence(problem)) {
    try {
      no_memory = lacking_memory(device->can_time() ? DeviceOracle::scratch_bytes() : 0);
      if (!no_memory.empty()) return;
      if (device->can_time()) device_oracle = std::make_unique<DeviceOracle>(device, problem);
      tensors.allocate();
    } catch (const Error& error) {
      if (status_of(error) != MeasurementStatus::out_of_memory) throw;
      no_memory = error.what();
      return;
    }
    fill_inputs();
    make_whole_lengths();
    input_checksums = tensors.input_checksums(device_oracle.get());
  }

  // Asks before anything is taken: why there is no room, or nothing. `more`: bytes beside the tensors that are not
  // allocated yet.
  std::string lacking_memory(std::size_t more) {
    const std::size_t wanted = more + (device->can_time() ? kMemoryReserve : 0) + tensors.missing_bytes();
    const std::size_t free = device->free_bytes();
    if (wanted <= free) return {};
    return fmt::format("{} needs {} MiB of memory on {}, {} MiB are free", canonical_text(problem), wanted >> 20,
                       device->description(), free >> 20);
  }

  void require_memory(std::size_t more) {
    const std::string reason = lacking_memory(more);
    if (!reason.empty()) throw Error(ErrorCode::driver, "out of memory: " + reason);
  }

  void fill_inputs() {
    fill_trial_inputs(tensors, problem, seed, terms, device_oracle.get(), forward);
    holds_timed_forward = false;
  }

  // Lengths that are timed and not checked have another O and LSE in backward, too: with an LSE that is not of the same
  // scores, probabilities could be anything.
  void hold_timed_forward() {
    if (problem.pass != Pass::backward || whole_lengths.bytes() == 0 || holds_timed_forward) return;
    for (std::size_t copy = 0; copy < tensors.copies(); ++copy) forward.launch(timed_call(copy));
    forward.synchronize();
    holds_timed_forward = true;
  }

  void make_whole_lengths() {
    if (!problem.has_used_lengths() || times_used) return;
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(problem.batch),
                                      static_cast<std::int32_t>(problem.seq_q));
    lengths.resize(2 * lengths.size(), static_cast<std::int32_t>(problem.seq_kv));
    whole_lengths = DeviceBuffer(device, lengths.size() * sizeof(std::int32_t));
    device->copy_to_device(whole_lengths.pointer(), lengths.data(), whole_lengths.bytes());
    if (!problem.packed) return;
    std::vector<std::int32_t> begins;
    for (const std::int64_t rows : {problem.seq_q, problem.seq_kv}) {
      std::int64_t begin = 0;
      begins.push_back(0);
      for (const std::int64_t length : distributed_lengths(problem.distribution, rows, problem.batch))
        begins.push_back(static_cast<std::int32_t>(begin += length));
    }
    timed_begins = DeviceBuffer(device, begins.size() * sizeof(std::int32_t));
    device->copy_to_device(timed_begins.pointer(), begins.data(), timed_begins.bytes());
  }

  // What is timed.
  Tensors timed_call(std::size_t copy) const {
    Tensors call = tensors.call(copy);
    if (whole_lengths.bytes() == 0) return call;
    call[Operand::seqused_q].data = reinterpret_cast<const void*>(whole_lengths.pointer());
    call[Operand::seqused_kv].data = reinterpret_cast<const void*>(whole_lengths.pointer() + whole_lengths.bytes() / 2);
    if (timed_begins.bytes() == 0) return call;
    call[Operand::cu_seqlens_q].data = reinterpret_cast<const void*>(timed_begins.pointer());
    call[Operand::cu_seqlens_kv].data =
        reinterpret_cast<const void*>(timed_begins.pointer() + timed_begins.bytes() / 2);
    return call;
  }

  void require_tensors() const {
    if (!no_memory.empty()) throw Error(ErrorCode::driver, "out of memory: " + no_memory);
  }

  void make_reference() {
    if (reference) return;
    require_tensors();
    if (count_flops(problem) <= kCpuOracleFlops || !device->can_time()) {
      reference = make_host_reference(problem, tensors, terms);
      return;
    }
    require_memory(device_reference_bytes(problem));
    reference = make_trial_device_reference(device, problem, tensors);
    reference_checksums = reference->checksums(device_oracle.get());
  }

  DeviceBuffer make_workspace(std::size_t bytes) {
    if (bytes == 0) return {};
    if (reference && !lacking_memory(bytes).empty()) {
      if (auto on_host = reference->on_host(*device)) {
        reference = std::move(on_host);
        reference_checksums.clear();
      }
    }
    require_memory(bytes);
    DeviceBuffer workspace(device, bytes);
    device->fill(workspace.pointer(), kNotANumber, bytes);
    return workspace;
  }

  // A call as the library makes it. `of` is the bench's problem, or differs from it in its scale alone.
  void launch(const PreparedAttention& prepared, const AttentionProblem& of, const Tensors& call,
              const DeviceBuffer& workspace) {
    const auto at = reinterpret_cast<void*>(workspace.pointer());
    runtime.launch(prepared, of, call, at, workspace.bytes(), nullptr);
  }

  void launch_once(const PreparedAttention& prepared) {
    const DeviceBuffer workspace = make_workspace(prepared.plan.workspace_bytes_of(problem));
    tensors.poison_outputs();
    launch(prepared, problem, tensors.call(0), workspace);
    device->synchronize(nullptr);
  }

  std::vector<OutputErrors> check(const PreparedAttention& prepared) {
    if (holds_timed_forward) fill_inputs();
    make_reference();
    launch_once(prepared);

    std::vector<OutputErrors> errors = reference->compare(tensors, device_oracle.get());
    tensors.check_guards(errors);
    if (tensors.input_checksums(device_oracle.get()) != input_checksums) {
      std::string names;
      for (const Operand operand : tensors.inputs())
        names += (names.empty()                              ? ""
                  : operand == *(tensors.inputs().end() - 1) ? " or "
                                                             : ", ") +
                 std::string(to_string(operand));
      errors.push_back(broken_output("inputs", "the kernel wrote to its inputs " + names));
      fill_inputs();
    }
    // A wild write may reach what the next kernels are compared with.
    if (reference->checksums(device_oracle.get()) != reference_checksums) {
      errors.push_back(broken_output("reference", "the kernel wrote to memory that is none of its tensors"));
      reference.reset();
      reference_checksums.clear();
    }
    return errors;
  }

  // The scores are `spread` times as wide as the problem's: forward, where the scale is an argument of the launch like
  // any other. Backward's LSE is that of the problem's own scale. `prepared` and `workspace` outlive the work.
  TimedWork timed_work(const PreparedAttention& prepared, const DeviceBuffer& workspace, int spread = 1) {
    AttentionProblem timed = problem;
    timed.softmax_scale *= static_cast<float>(spread);
    TimedWork work;
    work.launch = [this, &prepared, &workspace, timed](std::uint64_t index) {
      launch(prepared, timed, timed_call(index % tensors.copies()), workspace);
    };
    // The same inputs and outputs for every entry of a large batch: long, and small in the L2. Backward's LSE, and a
    // workspace that grows with the problem, cannot repeat: there it is the default forward that fills the time.
    const bool repeats = problem.pass == Pass::forward && prepared.plan.buffers.empty() && !problem.packed;
    if (!repeats) occupying.prepare();
    const PreparedAttention& long_running = repeats ? prepared : *occupying.prepared();
    const DeviceBuffer& used = repeats ? workspace : occupying.workspace();
    work.occupy = [this, &long_running, &used, scale = timed.softmax_scale](std::int64_t factor) {
      AttentionProblem long_problem = occupying.problem();
      long_problem.batch *= factor;
      long_problem.softmax_scale = scale;
      Tensors repeated = tensors.call(0);
      for (const Operand operand : kOperands) repeated[operand].stride_batch = 0;
      repeated[Operand::lse].data = nullptr;
      // There are fewer lengths than entries.
      repeated[Operand::seqused_q].data = repeated[Operand::seqused_kv].data = nullptr;
      runtime.launch(long_running, long_problem, repeated, reinterpret_cast<void*>(used.pointer()), used.bytes(),
                     nullptr);
    };
    std::int64_t most_ctas = 1;  // of a launch
    for (const KernelLaunch& launch : long_running.plan.launches)
      most_ctas = std::max(most_ctas, problem.batch * problem.heads_q * launch.query_tiles(problem));
    work.max_factor = std::max<std::int64_t>(1, (std::int64_t{1} << 30) / most_ctas);
    return work;
  }

  std::string protocol() const {
    std::string cold = tensors.copies() == 1
                           ? "cold by size: inputs exceed 4 L2; full queue, events"
                           : fmt::format("cold by rotation: {} copies, 2 L2; full queue, events", tensors.copies());
    if (timed_begins.bytes() == 0) return cold;
    return fmt::format("{}; {} lengths", cold,
                       kLengthDistributionNames[static_cast<std::size_t>(problem.distribution)]);
  }

  void time(const PreparedAttention& prepared, const TrialOptions& options, Measurement& m) {
    hold_timed_forward();
    const DeviceBuffer workspace = make_workspace(prepared.plan.workspace_bytes_of(problem));
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

  RaceTimes race(const std::vector<std::shared_ptr<const PreparedAttention>>& prepared, const RaceOptions& options) {
    if (options.wide && !races_wide(problem)) {
      throw Error(ErrorCode::invalid_argument, fmt::format("'{}' cannot be timed with scores {} times as wide: only a "
                                                           "forward problem whose scale stays finite can",
                                                           canonical_text(problem), kWideSpread));
    }
    require_tensors();
    hold_timed_forward();
    std::vector<DeviceBuffer> workspaces;
    for (const auto& each : prepared) workspaces.push_back(make_workspace(each->plan.workspace_bytes_of(problem)));
    // First all with the problem's own scores, then all with wide ones.
    std::vector<TimedWork> works;
    for (const int spread : options.wide ? std::vector<int>{1, kWideSpread} : std::vector<int>{1}) {
      for (std::size_t i = 0; i < prepared.size(); ++i)
        works.push_back(timed_work(*prepared[i], workspaces[i], spread));
    }
    TurnsPlan plan;
    plan.seconds = options.wide ? 2 * options.seconds : options.seconds;
    plan.min_rounds = options.min_rounds;
    plan.batch_microseconds = kBatchMicroseconds;
    plan.cuda_ordinal = options.cuda_ordinal;
    RaceTimes times;
    for (Timing& timing : time_in_turns(device, works, plan)) {
      times.complaint = timing.complaint;
      if (times.samples_us.size() == prepared.size()) {
        times.wide_samples_us.push_back(std::move(timing.samples_us));
        continue;
      }
      times.samples_us.push_back(std::move(timing.samples_us));
      times.clocks_mhz.push_back(std::move(timing.clocks_mhz));
    }
    times.protocol = fmt::format("{}; {} configs alternately", protocol(), prepared.size());
    if (options.wide) {
      // Inputs are unit normal, so a head dim's default scale gives the scores a standard deviation of 1.
      const float spread = problem.softmax_scale / default_softmax_scale(problem.head_dim);
      times.protocol += fmt::format(", spreads {:.3g} and {:.3g}", spread, kWideSpread * spread);
    }
    return times;
  }

  // Whether the process can still use the device after a driver's error.
  bool device_works() {
    try {
      device->synchronize(nullptr);
      std::uint8_t byte = 0;
      device->copy_from_device(&byte, tensors.of(Operand::o).region(0), 1);
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
    // A call gets the default without a search: it is timed whatever ptxas makes of it, so that a search ends with it
    // rather than with nothing.
    if (!options.spill_allowance_bytes && m.config == default_config(problem, device->spec())) return;
    const int allowance = options.spill_allowance_bytes.value_or(family_of(m.problem, m.config).spill_allowance_bytes);
    if (m.spill_bytes > allowance) {
      m.status = MeasurementStatus::spilled;
      m.reason = fmt::format("{} bytes of registers are spilled per thread, {} are allowed", m.spill_bytes, allowance);
    } else if (!advisory.empty()) {
      m.status = MeasurementStatus::serialized;
      m.reason = advisory;
    }
  }

  KernelPlan plan_of(const KernelConfig& config) const {
    return generate(problem, config, device->spec(), runtime_templates(), device->target());
  }

  void try_config(const KernelConfig& config, const TrialOptions& options, Measurement& m) {
    // A config that does not compile has a hash, too.
    KernelPlan plan = plan_of(config);
    m.source_hash = plan.source_hash();
    const auto prepared = runtime.prepare(std::move(plan));
    record_resources(*prepared, options, m);
    if (m.status != MeasurementStatus::ok) return;
    if (options.check) {
      const std::vector<OutputErrors> errors = check(*prepared);
      for (const OutputErrors& output : errors) {
        const bool of_values = &output - errors.data() < tensors.outputs().end() - tensors.outputs().begin() &&
                               output.name != to_string(Operand::d_sinks);  // whose terms may cancel each other
        if (output.name == "lse") {
          m.error_lse = output.max_abs;
        } else if (of_values && !std::isnan(m.error_o)) {
          m.error_o = std::isnan(output.relative) ? output.relative : std::max(m.error_o, output.relative);
        }
        if (!output.within && m.reason.empty()) m.reason = fmt::format("{}: {}", output.name, output.complaint);
      }
      if (std::any_of(errors.begin(), errors.end(), [](const OutputErrors& output) { return !output.within; })) {
        m.status = MeasurementStatus::wrong_result;
        return;
      }
    }
    if (options.time && device->can_time()) time(*prepared, options, m);
  }
};

TrialBench::TrialBench(std::shared_ptr<Device> device, const AttentionProblem& problem, std::uint64_t seed,
                       const TermValues& given)
    : state_(std::make_unique<State>(std::move(device), problem, seed, given)) {}
TrialBench::~TrialBench() = default;

Measurement TrialBench::run(const KernelConfig& config, const TrialOptions& options) {
  Measurement m;
  m.problem = state_->problem;
  m.config = config;
  m.device = state_->device->spec().name;
  m.sm_count = state_->device->spec().sm_count;
  m.rigor = options.time && state_->device->can_time() ? Rigor::measure : Rigor::estimate;
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
  std::vector<std::shared_ptr<const PreparedAttention>> prepared;
  for (const KernelConfig& config : configs) prepared.push_back(prepare(config));
  return race(prepared, options);
}

RaceTimes TrialBench::race(const std::vector<std::shared_ptr<const PreparedAttention>>& prepared,
                           const RaceOptions& options) {
  if (!state_->device->can_time())
    throw Error(ErrorCode::unsupported, state_->device->description() + " cannot time: there is nothing to race");
  return state_->race(prepared, options);
}

std::vector<OutputErrors> TrialBench::check(const PreparedAttention& prepared) { return state_->check(prepared); }

void TrialBench::launch_once(const PreparedAttention& prepared) {
  state_->require_tensors();
  state_->launch_once(prepared);
}

std::shared_ptr<const PreparedAttention> TrialBench::prepare(const KernelConfig& config) {
  return state_->runtime.prepare(state_->plan_of(config));
}

std::shared_ptr<const PreparedAttention> TrialBench::prepare(AttentionAlgorithm algorithm) {
  const Device& device = *state_->device;
  return state_->runtime.prepare(
      generate(state_->problem, algorithm, device.spec(), runtime_templates(), device.target()));
}

void TrialBench::make_reference() { state_->make_reference(); }

}  // namespace attune
