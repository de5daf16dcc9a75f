#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/lazy_value.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"

namespace attune {
namespace {

constexpr int kMaxOrdinals = 64;

// Made at the first call for each GPU and never destroyed: other threads and static objects may still use them when the
// process ends.
struct ProcessRuntimes {
  ActivityMutex making;
  StateMutex source_mutex;
  std::shared_ptr<ConfigSource> source;
  std::array<std::atomic<AttentionRuntime*>, kMaxOrdinals> by_ordinal{};
};

ProcessRuntimes& process_runtimes() {
  static constinit LazyValue<ProcessRuntimes> runtimes;
  return runtimes.get();
}

}  // namespace

AttentionRuntime& runtime_of(int ordinal) {
  ProcessRuntimes& runtimes = process_runtimes();
  if (ordinal < 0 || ordinal >= kMaxOrdinals) {
    throw Error(ErrorCode::no_device, "there is no GPU cuda:" + std::to_string(ordinal));
  }
  std::atomic<AttentionRuntime*>& runtime = runtimes.by_ordinal[static_cast<std::size_t>(ordinal)];
  if (AttentionRuntime* made = runtime.load(std::memory_order_acquire)) return *made;
  const ActivityMutex::Lock making(runtimes.making);
  if (AttentionRuntime* made = runtime.load(std::memory_order_acquire)) return *made;  // another thread was first
  const std::shared_ptr<ConfigSource> source = default_config_source();
  if (source == nullptr && frozen_by_environment()) {
    throw Error(ErrorCode::unsupported,
                "ATTUNE_FROZEN is set, and this program picks no tuned configs: call attune::use_tuned_configs() or "
                "attune::load_pack() before the first call, or unset ATTUNE_FROZEN");
  }
  auto* const made = new AttentionRuntime(open_cuda_device(ordinal), source);
  runtime.store(made, std::memory_order_release);
  return *made;
}

AttentionRuntime& current_runtime() { return runtime_of(current_cuda_ordinal()); }

void set_default_config_source(std::shared_ptr<ConfigSource> source) {
  ProcessRuntimes& runtimes = process_runtimes();
  const std::lock_guard lock(runtimes.source_mutex);
  runtimes.source.swap(source);  // what was there before goes without the lock
}

std::shared_ptr<ConfigSource> default_config_source() {
  ProcessRuntimes& runtimes = process_runtimes();
  const std::lock_guard lock(runtimes.source_mutex);
  return runtimes.source;
}

void attention_forward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                       std::size_t workspace_bytes, Stream stream) {
  current_runtime().forward(problem, tensors, workspace, workspace_bytes, stream);
}

void attention_backward(const AttentionProblem& problem, const Tensors& tensors, void* workspace,
                        std::size_t workspace_bytes, Stream stream) {
  current_runtime().backward(problem, tensors, workspace, workspace_bytes, stream);
}

std::size_t attention_workspace_bytes(const AttentionProblem& problem) {
  return current_runtime().workspace_bytes(problem);
}

}  // namespace attune
