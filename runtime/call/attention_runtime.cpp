#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/ladder/attention_algorithm.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/call/argument_packer.h"
#include "runtime/cuda/cuda_device.h"

namespace attune {
namespace {

constexpr int kWholeAlignment = 16, kElementAlignment = 2;  // bytes
constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;
constexpr std::size_t kMostPassedOver = 16;  // picks that do not fit or compile, until the default is taken
constexpr int kMostCompileFailures = 3;      // each may take seconds

bool is_multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }

// Strides of dimensions of extent 1 are never used, whatever they say. Tensor maps take no negative ones, nor longer
// ones.
bool rows_aligned(const TensorView& view, std::int64_t batch, std::int64_t heads, std::int64_t rows, int bytes,
                  int element_bytes) {
  const std::int64_t elements = bytes / element_bytes;
  const auto serves = [&](std::int64_t stride, std::int64_t extent) {
    return extent == 1 || (is_multiple(stride, elements) && stride >= 0 && stride < kMaxStrideBytes / element_bytes);
  };
  return reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         serves(view.stride_batch, batch) && serves(view.stride_head, heads) && serves(view.stride_row, rows);
}

void require_pointer(const TensorView& view, const char* name) {
  if (view.data == nullptr)
    throw Error(ErrorCode::invalid_argument, std::string("tensor ") + name + " is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(view.data) % kElementAlignment != 0) {
    throw Error(ErrorCode::invalid_argument,
                std::string("tensor ") + name + " starts at an odd address; its elements have 2 bytes");
  }
}

void require_tensors(const ForwardTensors& tensors) {
  require_pointer(tensors.q, "q");
  require_pointer(tensors.k, "k");
  require_pointer(tensors.v, "v");
  require_pointer(tensors.o, "o");
  if (reinterpret_cast<std::uintptr_t>(tensors.lse) % alignof(float) != 0) {
    throw Error(ErrorCode::invalid_argument, "lse starts at an address that is no multiple of 4");
  }
}

void require_gradients(const ForwardTensors& tensors, const GradientTensors& gradients) {
  require_pointer(gradients.d_o, "dO");
  require_pointer(gradients.d_q, "dQ");
  require_pointer(gradients.d_k, "dK");
  require_pointer(gradients.d_v, "dV");
  if (tensors.lse == nullptr) throw Error(ErrorCode::invalid_argument, "backward reads lse, which is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(gradients.d_lse) % alignof(float) != 0) {
    throw Error(ErrorCode::invalid_argument, "dLSE starts at an address that is no multiple of 4");
  }
}

void require_pass(const AttentionProblem& problem, Pass pass) {
  if (problem.pass != pass) {
    throw Error(ErrorCode::invalid_argument,
                "'" + canonical_text(problem) + "' is no " + std::string(to_string(pass)) + " problem");
  }
}

void require_workspace(const KernelPlan& plan, const AttentionProblem& problem, const void* workspace,
                       std::size_t bytes) {
  const std::size_t needed = plan.workspace_bytes_of(problem);
  if (needed == 0) return;
  if (workspace == nullptr || bytes < needed) {
    throw Error(ErrorCode::invalid_argument, "the workspace holds " + std::to_string(workspace == nullptr ? 0 : bytes) +
                                                 " bytes, " + std::to_string(needed) +
                                                 " are needed; ask workspace_bytes() for the size");
  }
  if (!plan.buffers.empty() && reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    throw Error(ErrorCode::invalid_argument, "the workspace starts at an address that is no multiple of " +
                                                 std::to_string(kWorkspaceAlignment) + "; this plan needs one that is");
  }
}

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

// Whether the same source serves both: all that a kernel class depends on beside the config.
// As kernel_class() of both says, without its texts.
bool same_kernel_class(const AttentionProblem& a, const AttentionProblem& b, const KernelConfig& config) {
  const bool same_group = a.heads_q / a.heads_kv == b.heads_q / b.heads_kv;
  return a.pass == b.pass && a.dtype == b.dtype && a.head_dim == b.head_dim && a.mask == b.mask &&
         a.alignment == b.alignment && (same_group || !config.packed_heads);
}

}  // namespace

TensorView packed_view(const AttentionProblem& problem, Operand operand) {
  const bool of_queries =
      operand == Operand::q || operand == Operand::o || operand == Operand::d_q || operand == Operand::d_o;
  const std::int64_t heads = of_queries ? problem.heads_q : problem.heads_kv;
  const std::int64_t rows = of_queries ? problem.seq_q : problem.seq_kv;
  const std::int64_t columns = problem.head_dim;
  if (operand == Operand::lse) throw Error(ErrorCode::internal, "LSE has one layout, (B, Hq, Sq), and no strides");
  TensorView view;
  view.stride_batch = heads * rows * columns;
  view.stride_head = problem.layout == Layout::bshd ? columns : rows * columns;
  view.stride_row = problem.layout == Layout::bshd ? heads * columns : columns;
  return view;
}

int alignment_of(const ForwardTensors& tensors, const AttentionProblem& problem) {
  const auto aligned = [&](const TensorView& view, std::int64_t heads, std::int64_t rows) {
    return rows_aligned(view, problem.batch, heads, rows, kWholeAlignment, size_of(problem.dtype));
  };
  const bool whole =
      aligned(tensors.q, problem.heads_q, problem.seq_q) && aligned(tensors.k, problem.heads_kv, problem.seq_kv) &&
      aligned(tensors.v, problem.heads_kv, problem.seq_kv) && aligned(tensors.o, problem.heads_q, problem.seq_q);
  return whole ? kWholeAlignment : kElementAlignment;
}

int alignment_of(const ForwardTensors& tensors, const GradientTensors& gradients, const AttentionProblem& problem) {
  const ForwardTensors of_gradients{gradients.d_q, gradients.d_k, gradients.d_v, gradients.d_o, nullptr};
  return std::min(alignment_of(tensors, problem), alignment_of(of_gradients, problem));
}

struct AttentionRuntime::State {
  using Prepared = std::shared_ptr<const PreparedAttention>;

  std::shared_ptr<Device> device;
  std::shared_ptr<ConfigSource> source;
  TemplateSet templates;
  std::uint64_t id;  // never used twice: a thread's last hit may outlive the runtime that it came from

  // Plans of each dispatch class, hardly ever more than one: a second where a config of the first does not fit a
  // problem of the same class. Plans are added, never removed.
  std::shared_mutex plans_mutex;
  std::unordered_map<AttentionProblem, std::vector<Prepared>, AttentionProblemHash> plans;

  // Compiling is one thread's work at a time. Loaded code is shared by all plans of a kernel class.
  std::mutex compile_mutex;
  std::map<std::string, std::weak_ptr<const CompiledKernel>> kernels;

  // Kernel classes of picks that the compiler refused: they are not tried again.
  mutable std::mutex refused_mutex;
  std::set<std::string> refused;

  State(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source, const TemplateSet& templates)
      : device(std::move(device)), source(std::move(source)), templates(templates), id(next_id()) {}

  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  bool fits(const KernelConfig& config, const AttentionProblem& problem) const {
    return infeasibility(problem, config, device->spec()).empty();
  }

  // A plan that was prepared for the class and fits this very problem; nullptr if there is none.
  Prepared find(const AttentionProblem& problem, const AttentionProblem& representative) {
    const std::shared_lock lock(plans_mutex);
    const auto found = plans.find(representative);
    if (found == plans.end()) return nullptr;
    for (const Prepared& prepared : found->second) {
      if (prepared->plan.problem == problem || fits(prepared->plan.config, problem)) return prepared;
    }
    return nullptr;
  }

  bool is_refused(const KernelConfig& config, const AttentionProblem& problem) const {
    const std::lock_guard lock(refused_mutex);
    return !refused.empty() && refused.count(kernel_class(problem, config)) > 0;
  }

  struct Pick {
    ConfigChoice choice;
    bool last_resort = false;  // the default config, after all that the source has
  };

  // A choice of the source is used only where it fits and compiles: a row of a database may come from another build,
  // another compiler or another GPU. What did not compile is told, what does not fit is logged if `tell`.
  Pick choose(const AttentionProblem& problem, bool only_default, bool tell) const {
    std::vector<KernelConfig> passed_over;
    std::string not_compiled;
    const auto told = [&](ConfigChoice choice) {
      if (!not_compiled.empty())
        choice.detail += (choice.detail.empty() ? "" : "; ") + not_compiled + " did not compile";
      return choice;
    };
    while (source != nullptr && passed_over.size() < kMostPassedOver) {
      std::optional<ConfigChoice> choice = source->find(problem, device->spec(), passed_over);
      if (!choice || std::find(passed_over.begin(), passed_over.end(), choice->config) != passed_over.end()) break;
      const bool compiles = !is_refused(choice->config, problem);
      if (!compiles) not_compiled += (not_compiled.empty() ? "" : ", ") + canonical_text(choice->config);
      const std::vector<std::string> reasons = infeasibility(problem, choice->config, device->spec());
      if (!only_default && compiles && reasons.empty()) return {told(std::move(*choice))};
      if (tell && !reasons.empty()) log_passed_over(choice->config, problem, "it does not fit: " + joined(reasons));
      passed_over.push_back(choice->config);
    }
    ConfigChoice standard{default_config(problem, device->spec()), ConfigOrigin::default_config, "",
                          tune_command(problem)};
    return {told(std::move(standard)), true};
  }

  KernelPlan plan(const AttentionProblem& problem, const ConfigChoice& choice) const {
    return generate(problem, choice.config, device->spec(), templates, device->target());
  }

  void log_passed_over(const KernelConfig& config, const AttentionProblem& problem, const std::string& why) const {
    if (!logs(LogLevel::info)) return;
    log(LogLevel::info, "the tuned config " + canonical_text(config) + " is passed over for \"" +
                            canonical_text(problem) + "\" on " + device->description() + ": " + why);
  }

  // compile_mutex is held.
  Prepared compile(const AttentionProblem& problem, ConfigChoice choice) {
    KernelPlan generated = plan(problem, choice);
    return load(std::move(generated), std::move(choice));
  }
  Prepared load(KernelPlan plan, ConfigChoice choice) {
    auto prepared = std::make_shared<PreparedAttention>();
    prepared->plan = std::move(plan);
    prepared->choice = std::move(choice);
    for (const KernelLaunch& launch : prepared->plan.launches) {
      std::weak_ptr<const CompiledKernel>& loaded = kernels[prepared->plan.kernel_class + " " + launch.entry];
      std::shared_ptr<const CompiledKernel> kernel = loaded.lock();
      if (kernel == nullptr) loaded = kernel = device->compile(launch);
      prepared->kernels.push_back(std::move(kernel));
    }
    return prepared;
  }

  // The first pick that compiles; the default config must. compile_mutex is held.
  Prepared compile_choice(const AttentionProblem& problem) {
    for (int failures = 0;; ++failures) {
      const Pick pick = choose(problem, failures == kMostCompileFailures, failures == 0);
      try {
        return compile(problem, pick.choice);
      } catch (const Error& error) {
        if (pick.last_resort || error.code() != ErrorCode::compile_failed) throw;
        log_passed_over(pick.choice.config, problem, std::string("it does not compile: ") + error.what());
      }
      const std::lock_guard lock(refused_mutex);
      refused.insert(kernel_class(problem, pick.choice.config));
    }
  }

  const PreparedAttention& last_or_found(const AttentionProblem& problem, Pass pass, Stream stream);

  Prepared find_or_compile(const AttentionProblem& problem) {
    const AttentionProblem representative = dispatch_class(problem).representative;
    if (Prepared prepared = find(problem, representative)) return prepared;
    const std::lock_guard compiling(compile_mutex);
    if (Prepared prepared = find(problem, representative)) return prepared;  // another thread was first
    Prepared prepared = compile_choice(problem);
    const std::unique_lock lock(plans_mutex);
    plans[representative].push_back(prepared);
    return prepared;
  }

  // The problem as the plan runs it. Throws where it cannot.
  AttentionProblem require_fit(const KernelPlan& plan, const AttentionProblem& asked, int alignment) const {
    AttentionProblem problem = asked;
    problem.alignment = plan.problem.alignment;
    if (!(problem == plan.problem)) {
      validate(problem);
      if (!same_kernel_class(problem, plan.problem, plan.config)) {
        throw Error(ErrorCode::invalid_argument,
                    "the kernel was prepared for " + plan.kernel_class + " and cannot run " + canonical_text(problem));
      }
      const std::vector<std::string> reasons = infeasibility(problem, plan.config, device->spec());
      if (!reasons.empty()) {
        throw Error(ErrorCode::infeasible_config,
                    canonical_text(plan.config) + " does not fit " + canonical_text(problem) + ": " + joined(reasons));
      }
    }
    if (alignment < plan.problem.alignment) {
      throw Error(ErrorCode::invalid_argument, "the kernel was prepared for rows that start at multiples of " +
                                                   std::to_string(plan.problem.alignment) +
                                                   " bytes; these tensors have others, prepare it with alignment 2");
    }
    return problem;
  }

  // Everything has been checked. `gradients` of a backward plan.
  void launch_checked(const PreparedAttention& prepared, const AttentionProblem& problem, const ForwardTensors& tensors,
                      const GradientTensors* gradients, void* workspace, std::size_t workspace_bytes, Stream stream) {
    const KernelPlan& plan = prepared.plan;
    const bool counted = !plan.counters.empty() && workspace_bytes >= plan.counted_workspace_bytes;
    const std::size_t zeroed_bytes = counted ? plan.counted_workspace_bytes : plan.zeroed_bytes_of(problem);
    const auto used = reinterpret_cast<DevicePointer>(workspace);
    if (zeroed_bytes != 0) device->fill(used, 0, zeroed_bytes, stream);
    PackedArguments arguments;
    ArgumentValues values{.gradients = gradients, .workspace = used, .counters = counted ? used : 0};
    for (const WorkspaceBuffer& buffer : plan.buffers) {
      const DevicePointer begin = used + plan.buffer_offset(buffer.argument, problem);
      if (buffer.argument == KernelArgument::statistics) values.statistics = begin;
      if (buffer.argument == KernelArgument::d_q_sums) values.d_q_sums = begin;
      if (buffer.argument == KernelArgument::turns) values.turns = begin;
      if (buffer.argument == KernelArgument::d_k_sums) values.d_k_sums = begin;
      if (buffer.argument == KernelArgument::d_v_sums) values.d_v_sums = begin;
      if (buffer.argument == KernelArgument::key_turns) values.key_turns = begin;
      if (buffer.argument == KernelArgument::scores) values.scores = begin;
      if (buffer.argument == KernelArgument::o_blocks) values.o_blocks = begin;
      if (buffer.argument == KernelArgument::row_states) values.row_states = begin;
    }
    for (std::size_t i = 0; i < plan.launches.size(); ++i) {
      pack_arguments(plan.launches[i], problem, tensors, values, *device, arguments);
      device->launch(*prepared.kernels[i], plan.launches[i].grid_x(problem), arguments.data.data(), arguments.bytes,
                     stream);
    }
  }
};

namespace {

// A thread's last call: the same problem again needs no lookup and no validation. Plans live as long as their runtime.
struct LastHit {
  std::uint64_t runtime = 0;
  AttentionProblem problem;
  const PreparedAttention* prepared = nullptr;
};
thread_local LastHit last_hit;

}  // namespace

// What a call of the pass launches. Compiles it, where it is the first of its dispatch class.
const PreparedAttention& AttentionRuntime::State::last_or_found(const AttentionProblem& problem, Pass pass,
                                                                Stream stream) {
  require_pass(problem, pass);
  if (last_hit.runtime != id || !(last_hit.problem == problem)) {
    validate(problem);
    Prepared prepared = find(problem, dispatch_class(problem).representative);
    if (prepared == nullptr) {
      if (device->is_capturing(stream)) {
        throw Error(ErrorCode::unsupported, "the stream is being captured, and no kernel is prepared for " +
                                                canonical_text(problem) +
                                                ": run this problem once, or prepare it, before the capture begins");
      }
      prepared = find_or_compile(problem);
    }
    last_hit = {id, problem, prepared.get()};
  }
  return *last_hit.prepared;
}

AttentionRuntime::AttentionRuntime(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source,
                                   const TemplateSet& templates)
    : state_(std::make_unique<State>(std::move(device), std::move(source), templates)) {}

AttentionRuntime::~AttentionRuntime() = default;

void AttentionRuntime::forward(const AttentionProblem& asked, const ForwardTensors& tensors, void* workspace,
                               std::size_t workspace_bytes, Stream stream) {
  require_tensors(tensors);
  AttentionProblem problem = asked;
  problem.alignment = alignment_of(tensors, problem);
  const PreparedAttention& prepared = state_->last_or_found(problem, Pass::forward, stream);
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  state_->launch_checked(prepared, problem, tensors, nullptr, workspace, workspace_bytes, stream);
}

void AttentionRuntime::backward(const AttentionProblem& asked, const ForwardTensors& tensors,
                                const GradientTensors& gradients, void* workspace, std::size_t workspace_bytes,
                                Stream stream) {
  require_tensors(tensors);
  require_gradients(tensors, gradients);
  AttentionProblem problem = asked;
  problem.alignment = alignment_of(tensors, gradients, problem);
  const PreparedAttention& prepared = state_->last_or_found(problem, Pass::backward, stream);
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  state_->launch_checked(prepared, problem, tensors, &gradients, workspace, workspace_bytes, stream);
}

std::size_t AttentionRuntime::workspace_bytes(const AttentionProblem& problem) {
  validate(problem);
  return most_workspace_bytes(problem, state_->device->spec());
}

std::shared_ptr<const PreparedAttention> AttentionRuntime::prepare(const AttentionProblem& problem,
                                                                   const std::optional<KernelConfig>& config) {
  validate(problem);
  if (!config) return state_->find_or_compile(problem);
  const std::lock_guard compiling(state_->compile_mutex);
  return state_->compile(problem, {*config, ConfigOrigin::given, "", ""});
}

std::shared_ptr<const PreparedAttention> AttentionRuntime::prepare(const AttentionProblem& problem,
                                                                   AttentionAlgorithm algorithm) {
  KernelPlan plan = generate(problem, algorithm, state_->device->spec(), state_->templates, state_->device->target());
  ConfigChoice choice{plan.config, ConfigOrigin::default_config, "", ""};
  const std::lock_guard compiling(state_->compile_mutex);
  return state_->load(std::move(plan), std::move(choice));
}

void AttentionRuntime::launch(const PreparedAttention& prepared, const AttentionProblem& asked,
                              const ForwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
                              Stream stream) {
  require_tensors(tensors);
  require_pass(prepared.plan.problem, Pass::forward);
  const AttentionProblem problem = state_->require_fit(prepared.plan, asked, alignment_of(tensors, asked));
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  state_->launch_checked(prepared, problem, tensors, nullptr, workspace, workspace_bytes, stream);
}

void AttentionRuntime::launch(const PreparedAttention& prepared, const AttentionProblem& asked,
                              const ForwardTensors& tensors, const GradientTensors& gradients, void* workspace,
                              std::size_t workspace_bytes, Stream stream) {
  require_tensors(tensors);
  require_gradients(tensors, gradients);
  require_pass(prepared.plan.problem, Pass::backward);
  const AttentionProblem problem = state_->require_fit(prepared.plan, asked, alignment_of(tensors, gradients, asked));
  require_workspace(prepared.plan, problem, workspace, workspace_bytes);
  state_->launch_checked(prepared, problem, tensors, &gradients, workspace, workspace_bytes, stream);
}

const std::shared_ptr<Device>& AttentionRuntime::device() const { return state_->device; }

namespace {

constexpr int kMaxOrdinals = 64;

// Made at the first call for each GPU and never destroyed: other threads and static objects may still use them when the
// process ends.
struct ProcessRuntimes {
  std::mutex mutex;
  std::shared_ptr<ConfigSource> source;
  std::array<std::atomic<AttentionRuntime*>, kMaxOrdinals> by_ordinal{};
};

ProcessRuntimes& process_runtimes() {
  static ProcessRuntimes& runtimes = *new ProcessRuntimes;
  return runtimes;
}

}  // namespace

AttentionRuntime& runtime_of(int ordinal) {
  ProcessRuntimes& runtimes = process_runtimes();
  if (ordinal < 0 || ordinal >= kMaxOrdinals) {
    throw Error(ErrorCode::no_device, "there is no GPU cuda:" + std::to_string(ordinal));
  }
  std::atomic<AttentionRuntime*>& runtime = runtimes.by_ordinal[static_cast<std::size_t>(ordinal)];
  if (AttentionRuntime* made = runtime.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(runtimes.mutex);
  if (runtime.load() == nullptr) runtime.store(new AttentionRuntime(open_cuda_device(ordinal), runtimes.source));
  return *runtime.load();
}

AttentionRuntime& current_runtime() { return runtime_of(current_cuda_ordinal()); }

void set_default_config_source(std::shared_ptr<ConfigSource> source) {
  ProcessRuntimes& runtimes = process_runtimes();
  const std::lock_guard lock(runtimes.mutex);
  runtimes.source = std::move(source);
}

void attention_forward(const AttentionProblem& problem, const ForwardTensors& tensors, void* workspace,
                       std::size_t workspace_bytes, Stream stream) {
  current_runtime().forward(problem, tensors, workspace, workspace_bytes, stream);
}

void attention_backward(const AttentionProblem& problem, const ForwardTensors& tensors,
                        const GradientTensors& gradients, void* workspace, std::size_t workspace_bytes, Stream stream) {
  current_runtime().backward(problem, tensors, gradients, workspace, workspace_bytes, stream);
}

std::size_t attention_workspace_bytes(const AttentionProblem& problem) {
  return current_runtime().workspace_bytes(problem);
}

}  // namespace attune
