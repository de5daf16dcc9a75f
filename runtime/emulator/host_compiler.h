#pragma once

#include <filesystem>
#include <string>

namespace attune {

/// A kernel compiled for the host.
struct HostObject {
  std::filesystem::path path;  ///< of the shared object
  std::string log;             ///< what the compiler said
  double compile_ms = 0;       ///< 0 if it came from the cache
  bool from_cache = false;
};

/// The first line of the compiler's --version. Throws Error(unsupported) that says how to get a compiler if there is
/// none.
std::string host_compiler_version();

/// Compiles C++ text into a shared object with $ATTUNE_HOST_COMPILER, else c++. Results are kept on disk
/// ($ATTUNE_CACHE_DIR/emulator, else $XDG_CACHE_HOME/attune/emulator, else ~/.cache/attune/emulator, else a folder in
/// the temporary directory) by source, flags and compiler version; files are written under a temporary name, synced,
/// and renamed. `rebuild` replaces what is there. Thread-safe. Throws Error(compile_failed) with the log,
/// Error(unsupported) without a compiler, Error(io) if no folder can be written.
HostObject compile_for_host(const std::string& source, bool rebuild = false);

}  // namespace attune
