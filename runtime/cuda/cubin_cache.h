#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/system/private_folder.h"

namespace attune {

/// Cubins on disk, each with its compile log and resources beside it. Key: source_body(), flags, NVRTC's build, arch.
/// An entry says which key it is of, so that one under another's name is not served. It is a folder that is written
/// under a temporary name, synced, and renamed, so that readers see a whole one or none; a damaged one, or another's,
/// is rebuilt. Safe under concurrent processes. Cubins are code that runs on the GPU: the cache's folder is a
/// PrivateFolder. One that cannot be made or written is used without storing, which is logged.
class CubinCache {
 public:
  /// $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune/cubins, else ~/.cache/attune/cubins, else a folder in the temporary
  /// directory: the first that would be used.
  static std::filesystem::path default_folder();

  /// The cache of default_folder(). If $ATTUNE_CACHE_DIR names a folder that others may have written to, get() throws
  /// Error(io) that says how to mend that; such a folder among the others is passed over, which is logged.
  CubinCache();
  /// The cache of this folder, as if $ATTUNE_CACHE_DIR named it.
  explicit CubinCache(std::filesystem::path folder);

  /// The cubin of a launch, compiled if it is not there.
  CompiledText get(const KernelLaunch& launch);
  /// Whether get() would read the cubin of a launch: whether it was stored, and can be read back.
  bool holds(const KernelLaunch& launch) const;
  /// Compiles anew and replaces the entry (after the driver refused to load it).
  CompiledText rebuild(const KernelLaunch& launch);

  /// The folder that would be used first.
  const std::filesystem::path& folder() const { return folders_.front().path; }

 private:
  std::optional<PrivateFolder> open() const;

  std::vector<CacheFolder> folders_;
};

}  // namespace attune
