#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attune::cli {

struct SubprocessResult {
  int status = 0;      ///< exit status; 128 + the signal that ended it
  std::string output;  ///< what it wrote to stdout; its stderr is the caller's
};

/// Runs a program (no shell) to its end. Throws Error(io) if it cannot be started.
SubprocessResult run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments);

/// NVIDIA's disassembler: $ATTUNE_NVDISASM, else in $PATH, $CUDA_HOME/bin or /usr/local/cuda/bin.
std::optional<std::filesystem::path> find_nvdisasm();

/// The SASS of a cubin. Throws Error(unsupported) that says how to get nvdisasm, Error(io) if it fails.
std::string disassemble(const std::string& cubin);

}  // namespace attune::cli
