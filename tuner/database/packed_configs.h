#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/call/config_source.h"
#include "runtime/cuda/kernel_source.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"
#include "tuner/database/kernel_pack.h"
#include "tuner/database/tuned_configs.h"

namespace attune {

/// The packs that a process has loaded, in the order of loading: the first one that has a row or a kernel answers.
/// Packs are added, never removed. Thread-safe.
class LoadedPacks final : public KernelSource {
 public:
  /// Those of this process. They live until it ends.
  static const std::shared_ptr<LoadedPacks>& of_process();

  /// Reads a pack, whose kernels and picks count from now on; one with the same content is not loaded twice. Throws as
  /// KernelPack() and require_usable() do; then everything is as it was.
  void load(const std::filesystem::path& path);

  std::vector<std::shared_ptr<const KernelPack>> all() const;

  std::optional<PackedKernel> find(const KernelLaunch& launch) const override;
  bool has(const KernelLaunch& launch) const override;

  /// The row of the problem, its scale and layout aside, in a pack for this GPU; else that of the nearest length of its
  /// dispatch class (by |log2| of both lengths' ratios, then by pack and canonical text). Only configs that fit the
  /// problem and are none of `passed_over` count. Throws Error(unsupported), which says what to do, if packs are loaded
  /// and none is for this GPU.
  std::optional<ConfigChoice> pick(const AttentionProblem& problem, const DeviceSpec& device,
                                   const std::vector<KernelConfig>& passed_over) const;

 private:
  mutable StateMutex mutex_;
  std::vector<std::shared_ptr<const KernelPack>> packs_;
};

/// Picks as calls of the library do: of packs first, then of the databases, which are opened at the first problem that
/// no pack has. Thread-safe.
class PackedConfigs final : public ConfigSource {
 public:
  using Open = std::function<std::shared_ptr<TunedConfigs>()>;
  /// `open` is called at most once in a process, unless it throws.
  PackedConfigs(std::shared_ptr<const LoadedPacks> packs, Open open, bool frozen);

  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                   const std::vector<KernelConfig>& passed_over = {}) override;
  bool frozen() const override { return frozen_; }

  /// 32 hexadecimal digits, equal where find() answers equally for every problem on such a device. What goes in:
  ///
  ///   the version of Attune; the names and texts of the kernel templates; every field of the DeviceSpec;
  ///   whether calls are frozen;
  ///   of each pack for the device, in the order of loading: its problems with their configs, its kernels' keys;
  ///   of the user's database and of each of the system's, in their order, if it has any: of each problem on a device
  ///   whose rows may be picked (the GPU's own and those of its compute capability) the configs in the order in which
  ///   they would be picked, which are estimates, of which kernel each is (the hash of its source), and which are of
  ///   this version of Attune and of this NVRTC; and, of one of the system's, the name and the version of its label.
  ///
  /// Times, samples, dates, failed trials, paths, and the order in which rows were stored do not: databases that rank
  /// the same configs in the same order have one digest. Neither does the driver, nor an NVRTC that no row or every row
  /// was measured with. Reads all databases, which takes milliseconds. Throws Error(database) for one that cannot be
  /// read now.
  std::string digest(const DeviceSpec& device, const TemplateSet& templates) const;

 private:
  TunedConfigs& tuned() const;

  const std::shared_ptr<const LoadedPacks> packs_;
  const Open open_;
  const bool frozen_;
  mutable ActivityMutex opening_;
  mutable StateMutex mutex_;
  mutable std::shared_ptr<TunedConfigs> tuned_;
};

/// Serves calls of this process from a pack that `attune pack` made: its kernels need no NVRTC, and its picks go before
/// those of the databases. Load packs before the first call: kernels that were prepared before stay. Packs of
/// $ATTUNE_PACK are loaded first. A program that has set no config source gets that of use_tuned_configs(). Throws
/// Error that names the file and says what to do for one that is missing, damaged, or made by another version; calls on
/// a GPU that no loaded pack is for are errors, too. Thread-safe.
void load_pack(const std::filesystem::path& path);

/// PackedConfigs::digest() of what calls of this process use on a device: equal on ranks that pick equally. Calls of
/// load_pack() and use_tuned_configs() come before it. Throws Error.
std::string picks_digest(const DeviceSpec& device);

}  // namespace attune
