#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "attune/attention.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/call/problem_log.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"

namespace attune {

/// Plans with their kernels loaded, on one device: picks configs, compiles what was picked, and finds it again.
/// Thread-safe: threads that want different kernels compile side by side, those that want the same one wait for the
/// first.
class PlanCache {
 public:
  using Prepared = std::shared_ptr<const PreparedAttention>;

  PlanCache(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source, const TemplateSet& templates);

  const std::shared_ptr<Device>& device() const { return device_; }

  /// What a call launches: a plan, on the problem with the simplest_mask(). Both stay until the thread's next call.
  struct Hit {
    const PreparedAttention& prepared;
    const AttentionProblem& problem;
  };
  /// What a call of the pass launches. Compiles it, where it is the first of its dispatch class. A thread's last call
  /// again, problem by problem as it was asked, costs no lookup and no validation; the plan lives as long as the cache.
  Hit last_or_found(const AttentionProblem& asked, Pass pass, Stream stream);
  /// Problems have the simplest_mask() from here on.
  Prepared find_or_compile(const AttentionProblem& problem);
  /// A plan of its own, that no lookup finds; its kernels are shared with the plans that it has the kernel class of.
  Prepared load(KernelPlan plan, ConfigChoice choice);
  /// Throws Error(infeasible_config) also where the plan needs more workspace than calls of the problem bring.
  Prepared compile(const AttentionProblem& problem, ConfigChoice choice);

 private:
  struct Pick {
    ConfigChoice choice;
    KernelPlan plan;
    bool last_resort = false;  // the default config, after all that the source has
  };

  bool fits(const KernelConfig& config, const AttentionProblem& problem) const;
  bool frozen() const { return source_ != nullptr && source_->frozen(); }
  ConfigChoice frozen_choice(const AttentionProblem& problem) const;
  void require_packed(const KernelPlan& plan) const;
  Prepared find(const AttentionProblem& problem, const DispatchClass& key);
  KernelPlan plan_without_sources(const AttentionProblem& problem, const KernelConfig& config) const;
  void add_sources(KernelPlan* plan);
  bool is_refused(const KernelConfig& config, const AttentionProblem& problem) const;
  Pick choose(const AttentionProblem& problem, bool only_default, bool tell) const;
  void log_passed_over(const KernelConfig& config, const AttentionProblem& problem, const std::string& why) const;
  std::shared_ptr<const CompiledKernel> find_or_compile(const std::string& name, const KernelLaunch& launch);
  Prepared compile_choice(const AttentionProblem& problem);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<ConfigSource> source_;
  const TemplateSet templates_;
  const std::shared_ptr<ProblemLog> problem_log_;  // of $ATTUNE_LOG_PROBLEMS as it was when this was made; may be null
  const std::uint64_t id_;  // never used twice: a thread's last hit may outlive the cache that it came from

  // Plans of each dispatch class, hardly ever more than one: a second where a config of the first does not fit a
  // problem of the same class. Plans are added, never removed.
  std::shared_mutex plans_mutex_;  // in sections of the ForkGate
  std::unordered_map<DispatchClass, std::vector<Prepared>, DispatchClassHash> plans_;

  // Who prepares a dispatch class, and who compiles a kernel, holds its mutex meanwhile. Loaded code is shared by all
  // plans of a kernel class. Elements are added, never removed: their addresses stay.
  struct Kernel {
    ActivityMutex compiling;
    std::weak_ptr<const CompiledKernel> loaded;
    std::weak_ptr<const PreparedAttention> prepared;  // the last one that has it
  };
  StateMutex elements_mutex_;  // guards both maps, and what is loaded or prepared
  std::unordered_map<DispatchClass, ActivityMutex, DispatchClassHash> preparing_;
  std::map<std::string, Kernel> kernels_;

  // Kernel classes of picks that the compiler refused: they are not tried again.
  mutable StateMutex refused_mutex_;
  std::set<std::string> refused_;
};

}  // namespace attune
