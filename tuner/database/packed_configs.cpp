#include "tuner/database/packed_configs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/lazy_value.h"
#include "runtime/cuda/compile_log.h"
#include "runtime/system/printable.h"
#include "tuner/database/text_digest.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// The files of $ATTUNE_PACK, in their order.
std::vector<fs::path> named_packs() {
  const char* const set = std::getenv("ATTUNE_PACK");
  std::string_view left = set == nullptr ? "" : set;
  std::vector<fs::path> named;
  while (!left.empty()) {
    const std::string_view name = left.substr(0, left.find(':'));
    if (!name.empty()) named.emplace_back(name);
    left.remove_prefix(std::min(left.size(), name.size() + 1));
  }
  return named;
}

// Once, unless it throws: a call after that looks again.
void load_named_packs() {
  static constinit ActivityMutex loading;
  static constinit std::atomic<bool> loaded{false};
  const ActivityMutex::Lock lock(loading);
  if (loaded) return;
  for (const fs::path& path : named_packs()) {
    try {
      LoadedPacks::of_process()->load(path);
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("ATTUNE_PACK names a pack that cannot be used: {}; or unset ATTUNE_PACK", error.what()));
    }
  }
  loaded = true;
}

std::string names_of(const std::vector<std::shared_ptr<const KernelPack>>& packs) {
  std::string names;
  for (const auto& pack : packs) {
    names += fmt::format("{}{} is for {} with {} SMs", names.empty() ? "" : ", ", pack->path().string(),
                         printable_line(pack->manifest().device), pack->manifest().sm_count);
  }
  return names;
}

double distance(const AttentionProblem& a, const AttentionProblem& b) {
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log2(static_cast<double>(x)) - std::log2(static_cast<double>(y)));
  };
  return apart(a.seq_q, b.seq_q) + apart(a.seq_kv, b.seq_kv);
}

}  // namespace

const std::shared_ptr<LoadedPacks>& LoadedPacks::of_process() {
  static constinit LazyValue<const std::shared_ptr<LoadedPacks>> made;
  return made.get([] { return std::make_shared<LoadedPacks>(); });
}

void LoadedPacks::load(const fs::path& path) {
  const auto pack = std::make_shared<const KernelPack>(path);
  pack->require_usable(runtime_templates());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& loaded : packs_) {
      if (loaded->content_hash() == pack->content_hash()) return;
    }
    packs_.push_back(pack);
  }
  log(LogLevel::debug, fmt::format("the pack {} is loaded: {} problems, {} kernels for {}", path.string(),
                                   pack->picks().size(), pack->kernels().size(), pack->manifest().device));
}

std::vector<std::shared_ptr<const KernelPack>> LoadedPacks::all() const {
  const std::lock_guard lock(mutex_);
  return packs_;
}

std::optional<PackedKernel> LoadedPacks::find(const KernelLaunch& launch) const {
  const std::string key = kernel_key(launch);
  for (const auto& pack : all()) {
    const PackKernel* const kernel = pack->find_kernel(key);
    if (kernel == nullptr) continue;
    PackedKernel found;
    found.compiled.image = kernel->image;
    read_compile_log(kernel->log, found.compiled.resources);
    found.compiled.resources.shared_bytes = launch.shared_bytes;
    found.compiled.resources.compile_ms = kernel->compile_ms;
    found.compiled.resources.from_cache = true;
    found.origin =
        fmt::format("the pack {}, which {} compiled", pack->path().string(), printable_line(pack->manifest().compiler));
    return found;
  }
  return std::nullopt;
}

bool LoadedPacks::has(const KernelLaunch& launch) const {
  const std::string key = kernel_key(launch);
  const auto packs = all();
  return std::any_of(packs.begin(), packs.end(), [&](const auto& pack) { return pack->find_kernel(key) != nullptr; });
}

std::optional<ConfigChoice> LoadedPacks::pick(const AttentionProblem& asked, const DeviceSpec& device,
                                              const std::vector<KernelConfig>& passed_over) const {
  const auto packs = all();
  if (packs.empty()) return std::nullopt;
  const AttentionProblem problem = simplest_mask(asked);
  const auto can_be_taken = [&](const KernelConfig& config) {
    return std::find(passed_over.begin(), passed_over.end(), config) == passed_over.end() &&
           infeasibility(problem, config, device).empty();
  };
  const auto choice_of = [&](const KernelPack& pack, const PackPick& row) {
    return ConfigChoice{
        row.config, ConfigOrigin::packed,
        fmt::format("{} of {}: {}{}{}", canonical_text(row.problem), pack.path().string(), printable_line(row.origin),
                    row.detail.empty() ? "" : ", ", printable_line(row.detail)),
        ""};
  };
  bool any_for_device = false;
  for (const auto& pack : packs) {
    if (!pack->is_for(device)) continue;
    any_for_device = true;
    const PackPick* const row = pack->find(problem);
    if (row != nullptr && can_be_taken(row->config)) return choice_of(*pack, *row);
  }
  if (!any_for_device) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("no loaded pack is for this GPU, {} with {} SMs: {}. Make one for it (`attune pack --device "
                    "cuda:N`, on this machine, or --target) and load it beside the others, or load none",
                    device.name, device.sm_count, names_of(packs)));
  }
  const KernelPack* from = nullptr;
  const PackPick* nearest = nullptr;
  for (const auto& pack : packs) {
    if (!pack->is_for(device)) continue;
    for (const PackPick* const row : pack->same_class(problem)) {
      if (nearest != nullptr && distance(row->problem, problem) >= distance(nearest->problem, problem)) continue;
      if (!can_be_taken(row->config)) continue;
      from = pack.get();
      nearest = row;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return choice_of(*from, *nearest);
}

PackedConfigs::PackedConfigs(std::shared_ptr<const LoadedPacks> packs, Open open, bool frozen)
    : packs_(std::move(packs)), open_(std::move(open)), frozen_(frozen) {}

TunedConfigs& PackedConfigs::tuned() const {
  const auto opened = [&] {
    const std::lock_guard lock(mutex_);
    return tuned_.get();
  };
  if (TunedConfigs* const tuned = opened()) return *tuned;
  const ActivityMutex::Lock opening(opening_);
  if (TunedConfigs* const tuned = opened()) return *tuned;  // another thread was first
  std::shared_ptr<TunedConfigs> made = open_();
  const std::lock_guard lock(mutex_);
  tuned_ = std::move(made);
  return *tuned_;
}

std::optional<ConfigChoice> PackedConfigs::find(const AttentionProblem& problem, const DeviceSpec& device,
                                                const std::vector<KernelConfig>& passed_over) {
  if (std::optional<ConfigChoice> packed = packs_->pick(problem, device, passed_over)) return packed;
  return tuned().find(problem, device, passed_over);
}

std::string PackedConfigs::digest(const DeviceSpec& device, const TemplateSet& templates) const {
  TextDigest digest;
  digest.add(attune_version()).add(hash_of_templates(templates)).add(frozen_ ? "frozen" : "");
  visit_fields(device, [&](const char* name, const auto& value) { digest.add(name).add(fmt::format("{}", value)); });
  for (const auto& pack : packs_->all()) {
    if (!pack->is_for(device)) continue;
    digest.add("pack").add(static_cast<long long>(pack->picks().size()));
    for (const PackPick& pick : pack->picks())
      digest.add(canonical_text(pick.problem)).add(canonical_text(pick.config));
    digest.add(static_cast<long long>(pack->kernels().size()));
    for (const PackKernel& kernel : pack->kernels()) digest.add(kernel.key);
  }
  const std::string arch = arch_name(device);
  const auto may_be_picked = [&](const std::string& name, int) {
    if (name == device.name) return true;
    const std::optional<DeviceSpec> known = find_device_by_name(name);
    return known && arch_name(*known) == arch;
  };
  const TunedConfigs& databases = tuned();
  const CurrentBuild& build = databases.build();
  for (const TunedConfigs::Layer& layer : databases.layers()) {
    const std::vector<TuningDatabase::Ranked> rows = layer.database->ranked(may_be_picked);
    if (rows.empty()) continue;  // it decides nothing
    const DatabaseLabel& label = layer.database->label();
    digest.add(layer.of_system ? "system database" : "user database").add(label.name).add(label.version);
    const TuningDatabase::Ranked* before = nullptr;
    for (const TuningDatabase::Ranked& row : rows) {
      const bool same_question = before != nullptr && before->problem == row.problem && before->device == row.device &&
                                 before->sm_count == row.sm_count;
      if (!same_question) digest.add("problem").add(row.problem).add(row.device).add(row.sm_count);
      digest.add(row.estimate ? "estimate" : "row").add(row.config).add(row.estimate ? "" : row.source_hash);
      digest.add(row.attune_version == build.version() ? "this version" : "");
      digest.add(!row.estimate && row.compiler == build.compiler() ? "this compiler" : "");
      before = &row;
    }
  }
  return digest.text();
}

void use_tuned_configs() {
  load_named_packs();
  const bool frozen = frozen_by_environment();
  const std::shared_ptr<LoadedPacks>& packs = LoadedPacks::of_process();
  if (!packs->all().empty()) set_kernel_source(packs);
  set_default_config_source(std::make_shared<PackedConfigs>(packs, &TunedConfigs::at_default_places, frozen));
}

void load_pack(const fs::path& path) {
  load_named_packs();
  LoadedPacks::of_process()->load(path);
  set_kernel_source(LoadedPacks::of_process());
  if (default_config_source() == nullptr) use_tuned_configs();
}

std::string picks_digest(const DeviceSpec& device) {
  if (default_config_source() == nullptr) use_tuned_configs();
  const auto source = std::dynamic_pointer_cast<const PackedConfigs>(default_config_source());
  if (source == nullptr) {
    throw Error(ErrorCode::unsupported,
                "a digest is of what use_tuned_configs() picks, and this program has set a config source of its own");
  }
  return source->digest(device, runtime_templates());
}

}  // namespace attune
