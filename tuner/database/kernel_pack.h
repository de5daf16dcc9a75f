#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/dispatch_class.h"
#include "generator/text/template_set.h"

namespace attune {

/// What a pack says about itself.
struct PackManifest {
  std::string attune_version;  ///< "0.1.0"
  std::string templates_hash;  ///< hash_of_templates() of those that its kernels were generated from
  std::string target;          ///< key of the device, such as "h200"
  std::string device;          ///< driver's name of the model, "NVIDIA H200"
  int sm_count = 0;
  std::string arch;        ///< "sm_90a"
  std::string compiler;    ///< "NVRTC 13.0 (build id ...)"
  std::string created_at;  ///< UTC, ISO 8601
};

/// A row: what a call of the problem, or of another length of its dispatch class, is answered with.
struct PackPick {
  AttentionProblem problem;
  KernelConfig config;
  std::string origin, detail;  ///< why it was picked, as ConfigChoice has both
  std::string source_hash;     ///< KernelPlan::source_hash()
};

struct PackKernel {
  std::string key;  ///< kernel_key()
  std::string entry;
  std::string source_hash;  ///< KernelLaunch::source_hash
  std::string image;        ///< the cubin
  std::string log;          ///< what the compiler said
  double compile_ms = 0;
};

/// Everything that a pack holds, on its way into a file.
struct PackContents {
  PackManifest manifest;
  std::vector<PackPick> picks;
  std::vector<PackKernel> kernels;
};

/// Writes a pack: whole or not at all, never over an input or over a database; what is there is replaced only with
/// `replace`. Throws Error that names the file and the cause.
void write_kernel_pack(const std::filesystem::path& path, const PackContents& contents,
                       const std::vector<std::filesystem::path>& inputs = {}, bool replace = false);
/// Before work that takes long: throws what write_kernel_pack() would throw now.
void require_writable_pack(const std::filesystem::path& path, const std::vector<std::filesystem::path>& inputs = {},
                           bool replace = false);

/// A pack that was read: kernels and picks for one GPU model, made ahead of time by `attune pack`. It is in memory as a
/// whole, so that it stays what it was whatever becomes of the file, and crosses forks. Immutable and thread-safe.
class KernelPack {
 public:
  /// Reads a file and compares its tables with those that `attune pack` makes, and what they hold with the hash that
  /// was written with it. Throws Error that names the file and says what to do: Error(io) for one that is not there or
  /// cannot be read, Error(invalid_argument) for one that is no pack or is damaged, Error(unsupported) for the format
  /// of a newer version.
  explicit KernelPack(const std::filesystem::path& path);

  /// Throws Error(unsupported), which says what to do, unless this version of Attune made the pack from these
  /// templates: then its kernels are those that calls would be compiled to.
  void require_usable(const TemplateSet& templates) const;

  const std::filesystem::path& path() const { return path_; }
  const PackManifest& manifest() const { return contents_.manifest; }
  const std::vector<PackPick>& picks() const { return contents_.picks; }        ///< by canonical text
  const std::vector<PackKernel>& kernels() const { return contents_.kernels; }  ///< by key
  /// Over everything that the file holds, its date included.
  const std::string& content_hash() const { return content_hash_; }

  /// Whether its picks are for this GPU: its model by the driver's name, with as many SMs.
  bool is_for(const DeviceSpec& device) const;
  /// The row of this problem, its scale and layout aside; nullptr if there is none.
  const PackPick* find(const AttentionProblem& problem) const;
  /// Rows of the problem's dispatch class, by canonical text.
  std::vector<const PackPick*> same_class(const AttentionProblem& problem) const;
  const PackKernel* find_kernel(const std::string& key) const;  ///< nullptr if there is none

 private:
  void read();
  void index();

  std::filesystem::path path_;
  PackContents contents_;
  std::string content_hash_;
  std::unordered_map<AttentionProblem, std::size_t, AttentionProblemHash> by_problem_;
  std::unordered_map<DispatchClass, std::vector<std::size_t>, DispatchClassHash> by_class_;
  std::unordered_map<std::string, std::size_t> by_key_;
};

/// Whether a file that begins with these bytes (100 are enough) says that it is a pack.
bool is_kernel_pack(std::string_view head);

/// Sixteen hexadecimal digits over the names and texts of all templates.
std::string hash_of_templates(const TemplateSet& templates);

}  // namespace attune
