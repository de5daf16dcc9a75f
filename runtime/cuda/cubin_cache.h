#pragma once

#include <filesystem>
#include <string>

#include "runtime/cuda/nvrtc_compiler.h"

namespace attune {

/// Cubins on disk, each with its compile log and resources beside it. Key: source, flags, NVRTC's build, arch. An entry
/// is a folder that is written under a temporary name, synced, and renamed, so that readers see a whole one or none; a
/// damaged one is rebuilt. Safe under concurrent processes. A cache that cannot be written is used without storing.
class CubinCache {
 public:
  /// $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune/cubins, else ~/.cache/attune/cubins, else a folder in the temporary
  /// directory.
  static std::filesystem::path default_folder();

  explicit CubinCache(std::filesystem::path folder = default_folder());

  /// The cubin of a launch, compiled if it is not there.
  CompiledText get(const KernelLaunch& launch);
  /// Compiles anew and replaces the entry (after the driver refused to load it).
  CompiledText rebuild(const KernelLaunch& launch);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace attune
