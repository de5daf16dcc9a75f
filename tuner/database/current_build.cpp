#include "tuner/database/current_build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/lazy_value.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/system/printable.h"
#include "runtime/system/template_folder.h"

namespace attune {
namespace {

std::string compiler_of_process() {
  try {
    return nvrtc_identity();
  } catch (const Error&) {
    return {};  // what cannot be compiled here comes from a pack, or not at all
  }
}

}  // namespace

CurrentBuild::CurrentBuild(std::string version, std::string compiler, const TemplateSet& templates)
    : version_(std::move(version)), compiler_(std::move(compiler)), templates_(templates) {}

const CurrentBuild& CurrentBuild::of_process() {
  static constinit LazyValue<const CurrentBuild> made;
  return made.get(
      [] { return CurrentBuild(std::string(attune_version()), compiler_of_process(), runtime_templates()); });
}

// The hash of a row's kernel as it would be now; empty for a config that has none any more.
std::string CurrentBuild::source_hash_of(const Measurement& row, const DeviceSpec& asked) const {
  const bool same_model = row.device == asked.name;
  std::optional<DeviceSpec> device = same_model ? asked : find_device_by_name(row.device);
  if (!device) return row.source_hash;  // nothing is known of it
  device->sm_count = row.sm_count;
  const std::string key = fmt::format("{} {} {}", row.device, row.sm_count, kernel_class(row.problem, row.config));
  {
    const std::lock_guard lock(mutex_);
    const auto known = by_kernel_.find(key);
    if (known != by_kernel_.end()) return known->second;
  }
  std::string hash;
  try {
    hash = generate(row.problem, row.config, *device, templates_).source_hash();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::template_error) throw;
  }
  const std::lock_guard lock(mutex_);
  return by_kernel_.emplace(key, std::move(hash)).first->second;
}

Staleness CurrentBuild::staleness_of_build(const Measurement& row) const {
  const bool compiled = row.rigor != Rigor::estimate && !compiler_.empty();
  const bool same = row.attune_version == version_ && (!compiled || row.compiler == compiler_);
  return same ? Staleness::current : Staleness::other_build;
}

Staleness CurrentBuild::staleness(const Measurement& row, const DeviceSpec& asked) const {
  if (row.rigor != Rigor::estimate && !is_of_source(row, source_hash_of(row, asked), templates_))
    return Staleness::other_kernel;
  return staleness_of_build(row);
}

std::string CurrentBuild::why_stale(const Measurement& row, const DeviceSpec& asked) const {
  std::vector<std::string> reasons;
  if (row.rigor != Rigor::estimate) {
    const std::string source = source_hash_of(row, asked);
    if (source.empty()) {
      reasons.push_back("its config has no kernel any more");
    } else if (!is_of_source(row, source, templates_)) {
      reasons.push_back(
          fmt::format("its kernel was another one (source {}, now {})", printable_line(row.source_hash), source));
    }
    if (!compiler_.empty() && row.compiler != compiler_)
      reasons.push_back(fmt::format("it was compiled by {}, not by {}", printable_line(row.compiler), compiler_));
  }
  if (row.attune_version != version_)
    reasons.push_back(fmt::format("it is of Attune {}, not of {}", printable_line(row.attune_version), version_));
  return fmt::format("{}", fmt::join(reasons, ", and "));
}

bool is_of_source(const Measurement& row, const std::string& source_hash, const TemplateSet& templates) {
  if (!row.source_hash.starts_with(kTemplatesMark)) return !source_hash.empty() && row.source_hash == source_hash;
  return is_of_last_templates(row) && &templates == &TemplateSet::embedded();
}

}  // namespace attune
