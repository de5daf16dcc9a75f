#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace attune::cli {

/// NVIDIA's disassembler: $ATTUNE_NVDISASM, else in $PATH, $CUDA_HOME/bin or /usr/local/cuda/bin; the current folder is
/// not looked at.
std::optional<std::filesystem::path> find_nvdisasm();

/// The SASS of a cubin. Throws Error(unsupported) that says how to get nvdisasm, Error(io) if it fails.
std::string disassemble(const std::string& cubin);

}  // namespace attune::cli
