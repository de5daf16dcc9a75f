#pragma once

#include <string>

namespace attune {

/// A kernel compiled for the host.
struct HostObject {
  std::string bytes;      ///< the shared object
  std::string log;        ///< what the compiler said
  double compile_ms = 0;  ///< 0 if it came from the cache
  bool from_cache = false;
};

/// The first line of the compiler's --version. Throws Error(unsupported) that says how to get a compiler if there is
/// none.
std::string host_compiler_version();

/// Compiles C++ text into a shared object with $ATTUNE_HOST_COMPILER, else c++, both searched in the folders that $PATH
/// names from the root. A word such as -O2 among them chooses how far the compiler optimizes, else it is -O1. Results
/// are kept on disk ($ATTUNE_CACHE_DIR/emulator, else $XDG_CACHE_HOME/attune/emulator, else ~/.cache/attune/emulator,
/// else a folder in the temporary directory) by source_body(), flags, the compiler's words and version. They are code
/// that this process runs, so that the folder must be a PrivateFolder: an unsafe one is refused with Error(io) if
/// ATTUNE_CACHE_DIR names it, else passed over with a warning; without any, nothing is kept. A file carries a hash of
/// its bytes and of what it is for: a damaged one is compiled again. `rebuild` replaces what is there. Thread-safe.
/// Throws Error(compile_failed) with the log, Error(unsupported) without a compiler, Error(io).
HostObject compile_for_host(const std::string& source, bool rebuild = false);

}  // namespace attune
