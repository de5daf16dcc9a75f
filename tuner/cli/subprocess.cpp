#include "tuner/cli/subprocess.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "generator/error.h"
#include "runtime/system/child_program.h"
#include "runtime/system/scratch_folder.h"

namespace attune::cli {
namespace {

constexpr std::size_t kMostSassBytes = std::size_t{256} << 20;

ScratchFolder folder_for_sass() {
  try {
    return {temporary_files(), "attune-sass-"};
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ErrorCode::io, error.what());
  }
}

}  // namespace

std::optional<std::filesystem::path> find_nvdisasm() {
  if (const char* named = std::getenv("ATTUNE_NVDISASM"); named && *named) {
    if (!is_program(named)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("ATTUNE_NVDISASM names {}, which is no program that can be run", named));
    }
    return named;
  }
  if (auto found = find_program("nvdisasm")) return found;
  if (const char* home = std::getenv("CUDA_HOME"); home && *home) {
    if (const auto program = std::filesystem::path(home) / "bin" / "nvdisasm"; is_program(program)) return program;
  }
  if (is_program("/usr/local/cuda/bin/nvdisasm")) return "/usr/local/cuda/bin/nvdisasm";
  return std::nullopt;
}

std::string disassemble(const std::string& cubin) {
  const std::optional<std::filesystem::path> nvdisasm = find_nvdisasm();
  if (!nvdisasm) {
    throw Error(
        ErrorCode::unsupported,
        "SASS needs nvdisasm, which is not in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin: install the CUDA toolkit's "
        "cuda-nvdisasm package, or set ATTUNE_NVDISASM to the program");
  }
  const ScratchFolder folder = folder_for_sass();
  const std::filesystem::path file = folder.path() / "kernel.cubin";
  std::ofstream written(file, std::ios::binary);
  if (!written.write(cubin.data(), static_cast<std::streamsize>(cubin.size())).flush()) {
    throw Error(ErrorCode::io, fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)));
  }
  const ChildProgramResult result =
      run_program(*nvdisasm, {file.string()}, ChildOutput::standard_output, kMostSassBytes);
  if (result.status != 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} ended with status {}: it may be older than the GPU that the kernel is for",
                            nvdisasm->string(), result.status));
  }
  if (result.cut) {
    throw Error(ErrorCode::io,
                fmt::format("{} wrote more than {} bytes for one kernel", nvdisasm->string(), kMostSassBytes));
  }
  return result.output;
}

}  // namespace attune::cli
