#pragma once

#include <map>
#include <string>

#include "generator/device/device_spec.h"
#include "generator/text/template_set.h"
#include "runtime/system/state_mutex.h"
#include "tuner/database/measurement.h"

namespace attune {

/// How far what was measured is from what a call would run now, in rising order of doubt.
enum class Staleness {
  current,
  other_build,   ///< the same kernel, by another compiler or by another version of Attune
  other_kernel,  ///< the kernel that its config has now is another one, or there is none
};

/// What calls of this process run: tells rows that were measured of it from those of another time. Thread-safe.
class CurrentBuild {
 public:
  /// `compiler`: as Measurement has it; empty: not known, and no row is told by it. `templates` outlive this.
  CurrentBuild(std::string version, std::string compiler, const TemplateSet& templates);
  /// This version of Attune, the NVRTC that is found, and runtime_templates(). The first call opens NVRTC.
  static const CurrentBuild& of_process();

  const std::string& version() const { return version_; }
  const std::string& compiler() const { return compiler_; }

  /// A row of the cost model has no kernel: only the version of Attune tells it. `asked` is the device that is asked
  /// for; a row of another one is judged by what the table of devices knows of it. The first look at a kernel class
  /// generates its source, which takes milliseconds.
  Staleness staleness(const Measurement& row, const DeviceSpec& asked) const;
  /// The cheap half of staleness(): never generates anything, and takes every kernel for one of now.
  Staleness staleness_of_build(const Measurement& row) const;
  /// How a row differs from what runs now, as the rest of a sentence that begins with it: "its kernel was another one
  /// (source 0123456789abcdef, now fedcba9876543210), and it was compiled by NVRTC 12.4, not by NVRTC 13.0". Empty for
  /// a current one.
  std::string why_stale(const Measurement& row, const DeviceSpec& asked) const;

 private:
  std::string source_hash_of(const Measurement& row, const DeviceSpec& asked) const;

  const std::string version_, compiler_;
  const TemplateSet& templates_;
  mutable StateMutex mutex_;                              // guards what follows
  mutable std::map<std::string, std::string> by_kernel_;  // hashes of sources, by device and kernel class
};

/// Whether a row was measured of a kernel with this KernelPlan::source_hash(), which is that of its config now. Rows of
/// version 0.1 that know their templates alone are judged by those.
bool is_of_source(const Measurement& row, const std::string& source_hash, const TemplateSet& templates);

}  // namespace attune
