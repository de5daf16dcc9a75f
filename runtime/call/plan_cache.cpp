#include "runtime/call/plan_cache.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/call/call_checks.h"
#include "runtime/call/nvtx_range.h"
#include "runtime/cuda/kernel_source.h"

namespace attune {
namespace {

constexpr std::size_t kMostPassedOver = 16;  // picks that do not fit or compile, until the default is taken
constexpr int kMostCompileFailures = 3;      // each may take seconds

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

// A thread's last call: the same problem again needs no lookup and no validation. Plans live as long as their cache.
struct LastHit {
  std::uint64_t cache = 0;
  AttentionProblem asked, problem;
  const PreparedAttention* prepared = nullptr;
};
thread_local LastHit last_hit;

// By which a kernel is known: plans of one class have the same.
std::string name_of(const KernelPlan& plan, const KernelLaunch& launch) {
  return plan.kernel_class + " " + launch.entry;
}

}  // namespace

PlanCache::PlanCache(std::shared_ptr<Device> device, std::shared_ptr<ConfigSource> source, const TemplateSet& templates)
    : device_(std::move(device)),
      source_(std::move(source)),
      templates_(templates),
      problem_log_(ProblemLog::of_environment()),
      id_(next_id()) {}

bool PlanCache::fits(const KernelConfig& config, const AttentionProblem& problem) const {
  return infeasibility_of_prepared(problem, config, device_->spec()).empty();
}

// A plan that was prepared for the class and fits this very problem; nullptr if there is none. Frozen calls get what
// the source picks, whatever was called before them.
PlanCache::Prepared PlanCache::find(const AttentionProblem& problem, const DispatchClass& key) {
  const auto prepared_as = [&](const auto& wanted) -> Prepared {
    const ForkGate::Section section;
    const std::shared_lock lock(plans_mutex_);
    const auto found = plans_.find(key);
    if (found == plans_.end()) return nullptr;
    for (const Prepared& prepared : found->second) {
      if (wanted(*prepared)) return prepared;
    }
    return nullptr;
  };
  const auto is_its_own = [&](const PreparedAttention& prepared) { return prepared.plan.problem == problem; };
  if (!frozen()) {
    return prepared_as([&](const PreparedAttention& prepared) {
      return is_its_own(prepared) || (fits(prepared.plan.config, problem) &&
                                      lacking_workspace(prepared.plan, problem, device_->spec()).empty());
    });
  }
  if (Prepared prepared = prepared_as(is_its_own)) return prepared;
  const KernelConfig config = frozen_choice(problem).config;
  return prepared_as([&](const PreparedAttention& prepared) { return prepared.plan.config == config; });
}

// What a frozen call takes: a pick of a pack, or of a database for this very problem.
ConfigChoice PlanCache::frozen_choice(const AttentionProblem& problem) const {
  std::optional<ConfigChoice> choice = source_->find(problem, device_->spec());
  if (choice && (choice->origin == ConfigOrigin::packed || choice->origin == ConfigOrigin::exact))
    return std::move(*choice);
  throw Error(ErrorCode::unsupported,
              "ATTUNE_FROZEN is set, and neither a loaded pack nor a tuning database has a row of \"" +
                  canonical_text(problem) + "\" on " + device_->description() + ": add the problem to the pack (" +
                  pack_command(problem, device_->spec()) + "; --shapes takes a list), or unset ATTUNE_FROZEN");
}

void PlanCache::require_packed(const KernelPlan& plan) const {
  const std::shared_ptr<const KernelSource> packs = kernel_source();
  for (const KernelLaunch& launch : plan.launches) {
    if (packs != nullptr && packs->has(launch)) continue;
    throw Error(ErrorCode::unsupported,
                "ATTUNE_FROZEN is set, and no loaded pack has kernel " + launch.entry + " of \"" +
                    canonical_text(plan.problem) + "\" with the config " + canonical_text(plan.config) + " for " +
                    launch.arch + " (" + device_->description() + "): add the problem to the pack (" +
                    pack_command(plan.problem, device_->spec()) + "; --shapes takes a list), or unset ATTUNE_FROZEN");
  }
}

bool PlanCache::is_refused(const KernelConfig& config, const AttentionProblem& problem) const {
  const std::lock_guard lock(refused_mutex_);
  return !refused_.empty() && refused_.count(kernel_class(problem, config)) > 0;
}

// A choice of the source is used only where it fits and compiles: a row of a database may come from another build,
// another compiler or another GPU. What did not compile is told, what does not fit is logged if `tell`.
PlanCache::Pick PlanCache::choose(const AttentionProblem& problem, bool only_default, bool tell) const {
  std::vector<KernelConfig> passed_over;
  std::string not_compiled;
  const auto told = [&](ConfigChoice choice) {
    if (!not_compiled.empty()) choice.detail += (choice.detail.empty() ? "" : "; ") + not_compiled + " did not compile";
    return choice;
  };
  while (source_ != nullptr && passed_over.size() < kMostPassedOver) {
    std::optional<ConfigChoice> choice = source_->find(problem, device_->spec(), passed_over);
    if (!choice || std::find(passed_over.begin(), passed_over.end(), choice->config) != passed_over.end()) break;
    const bool compiles = !is_refused(choice->config, problem);
    if (!compiles) not_compiled += (not_compiled.empty() ? "" : ", ") + canonical_text(choice->config);
    std::vector<std::string> reasons = infeasibility(problem, choice->config, device_->spec());
    if (!only_default && compiles && reasons.empty()) {
      KernelPlan plan = plan_without_sources(problem, choice->config);
      const std::string lacking = lacking_workspace(plan, problem, device_->spec());
      if (lacking.empty()) return {told(std::move(*choice)), std::move(plan)};
      reasons.push_back(lacking);
    }
    if (tell && !reasons.empty()) log_passed_over(choice->config, problem, "it does not fit: " + joined(reasons));
    passed_over.push_back(choice->config);
  }
  ConfigChoice standard{default_config(problem, device_->spec()), ConfigOrigin::default_config, "",
                        tune_command(problem), ConfigBasis::model};
  KernelPlan plan = plan_without_sources(problem, standard.config);
  return {told(std::move(standard)), std::move(plan), true};
}

void PlanCache::log_passed_over(const KernelConfig& config, const AttentionProblem& problem,
                                const std::string& why) const {
  if (!logs(LogLevel::info)) return;
  log(LogLevel::info, "the tuned config " + canonical_text(config) + " is passed over for \"" +
                          canonical_text(problem) + "\" on " + device_->description() + ": " + why);
}

std::shared_ptr<const CompiledKernel> PlanCache::find_or_compile(const std::string& name, const KernelLaunch& launch) {
  const auto element = [&]() -> Kernel& {
    const std::lock_guard lock(elements_mutex_);
    return kernels_[name];
  };
  Kernel& kernel = element();
  const ActivityMutex::Lock compiling(kernel.compiling);
  const auto known = [&] {
    const std::lock_guard lock(elements_mutex_);
    return kernel.loaded.lock();
  };
  if (std::shared_ptr<const CompiledKernel> loaded = known()) return loaded;
  std::shared_ptr<const CompiledKernel> loaded = device_->compile(launch);
  const std::lock_guard lock(elements_mutex_);
  kernel.loaded = loaded;
  return loaded;
}

// Sources of a plan without: as plans of the same kernels have them, else rendered, which takes longer than all else
// that a new shape of known kernels needs.
void PlanCache::add_sources(KernelPlan* plan) {
  const auto is_known = [&](KernelLaunch& launch) {
    const std::shared_ptr<const PreparedAttention> like = [&]() -> std::shared_ptr<const PreparedAttention> {
      const std::lock_guard lock(elements_mutex_);
      const auto found = kernels_.find(name_of(*plan, launch));
      return found == kernels_.end() ? nullptr : found->second.prepared.lock();
    }();
    if (like == nullptr) return false;
    const auto same = std::find_if(like->plan.launches.begin(), like->plan.launches.end(),
                                   [&](const KernelLaunch& other) { return other.entry == launch.entry; });
    launch.source = same->source;
    launch.source_hash = same->source_hash;
    launch.lines = same->lines;
    return true;
  };
  if (!std::all_of(plan->launches.begin(), plan->launches.end(), is_known))
    *plan = generate(plan->problem, plan->config, device_->spec(), templates_, device_->target());
}

PlanCache::Prepared PlanCache::load(KernelPlan plan, ConfigChoice choice) {
  const NvtxRange range("prepare", plan.problem, plan.config);
  if (plan.launches.front().source.empty()) add_sources(&plan);
  if (frozen()) require_packed(plan);
  auto prepared = std::make_shared<PreparedAttention>();
  prepared->plan = std::move(plan);
  prepared->choice = std::move(choice);
  for (const KernelLaunch& launch : prepared->plan.launches)
    prepared->kernels.push_back(find_or_compile(name_of(prepared->plan, launch), launch));
  const std::lock_guard lock(elements_mutex_);
  for (const KernelLaunch& launch : prepared->plan.launches)
    kernels_[name_of(prepared->plan, launch)].prepared = prepared;
  return prepared;
}

KernelPlan PlanCache::plan_without_sources(const AttentionProblem& problem, const KernelConfig& config) const {
  return generate(problem, config, device_->spec(), TemplateSet::none(), device_->target());
}

PlanCache::Prepared PlanCache::compile(const AttentionProblem& problem, ConfigChoice choice) {
  KernelPlan plan = plan_without_sources(problem, choice.config);
  if (const std::string lacking = lacking_workspace(plan, problem, device_->spec()); !lacking.empty()) {
    throw Error(ErrorCode::infeasible_config,
                canonical_text(choice.config) + " does not fit " + canonical_text(problem) + ": " + lacking);
  }
  return load(std::move(plan), std::move(choice));
}

// The first pick that compiles; the default config must.
PlanCache::Prepared PlanCache::compile_choice(const AttentionProblem& problem) {
  if (frozen()) return compile(problem, frozen_choice(problem));
  for (int failures = 0;; ++failures) {
    Pick pick = choose(problem, failures == kMostCompileFailures, failures == 0);
    try {
      return load(std::move(pick.plan), pick.choice);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::nvrtc_unavailable && kernel_source() != nullptr) {
        throw Error(error.code(), "no loaded pack has the kernels of \"" + canonical_text(problem) +
                                      "\" with the config " + canonical_text(pick.choice.config) + " on " +
                                      device_->description() + "; " + pack_command(problem, device_->spec()) +
                                      " makes one that has. They cannot be compiled here: " + error.what());
      }
      if (pick.last_resort || error.code() != ErrorCode::compile_failed) throw;
      log_passed_over(pick.choice.config, problem, std::string("it does not compile: ") + error.what());
    }
    const std::lock_guard lock(refused_mutex_);
    refused_.insert(kernel_class(problem, pick.choice.config));
  }
}

PlanCache::Prepared PlanCache::find_or_compile(const AttentionProblem& problem) {
  if (problem_log_ != nullptr) problem_log_->note(problem);
  const DispatchClass key = dispatch_class(problem);
  if (Prepared prepared = find(problem, key)) return prepared;
  const auto element = [&]() -> ActivityMutex& {
    const std::lock_guard lock(elements_mutex_);
    return preparing_[key];
  };
  const ActivityMutex::Lock preparing(element());
  if (Prepared prepared = find(problem, key)) return prepared;  // another thread was first
  Prepared prepared = compile_choice(problem);
  const ForkGate::Section section;
  const std::unique_lock lock(plans_mutex_);
  plans_[key].push_back(prepared);
  return prepared;
}

PlanCache::Hit PlanCache::last_or_found(const AttentionProblem& asked, Pass pass, Stream stream) {
  require_pass(asked, pass);
  if (last_hit.cache != id_ || !(last_hit.asked == asked)) {
    validate(asked);
    const AttentionProblem problem = simplest_mask(asked);
    Prepared prepared = find(problem, dispatch_class(problem));
    if (prepared == nullptr) {
      if (device_->is_capturing(stream)) {
        throw Error(ErrorCode::unsupported, "the stream is being captured, and no kernel is prepared for " +
                                                canonical_text(problem) +
                                                ": run this problem once, or prepare it, before the capture begins");
      }
      prepared = find_or_compile(problem);
    } else if (problem_log_ != nullptr) {
      problem_log_->note(problem);
    }
    last_hit = {id_, asked, problem, prepared.get()};
  }
  return {*last_hit.prepared, last_hit.problem};
}

}  // namespace attune
