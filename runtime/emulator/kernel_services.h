#pragma once

#include <cstdint>

namespace attune {

/// What the emulator does for a kernel. The same struct, member by member, as EmulatorServices of
/// templates/primitives/prelude/emulator.cu; `bytes` is checked when a kernel is loaded.
struct KernelServices {
  std::uint64_t bytes = sizeof(KernelServices);
  std::uint32_t (*thread_index)();
  std::uint32_t (*block_index)();
  void* (*global_memory)(const char* name, const void* address, std::uint32_t bytes, bool write);
  std::uint32_t (*shared_base)();
  void* (*shared_memory)(const char* name, std::uint32_t address, std::uint32_t bytes, bool write);
  void (*barrier)(const char* name);
  void (*warp_barrier)(const char* name);
  void (*async_copy)(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes);
  void (*async_commit)();
  void (*async_wait)(std::uint32_t pending_groups);
  void (*load_matrices)(const char* name, std::uint32_t* r, std::uint32_t row, std::uint32_t count, bool transpose);
  void (*multiply_add)(const char* name, float* d, const std::uint32_t* a, const std::uint32_t* b, std::uint32_t k,
                       bool bf16);
  std::uint32_t (*shuffle_xor)(const char* name, std::uint32_t x, std::uint32_t mask);
  bool (*vote_any)(const char* name, bool x);
};

/// The services of this process; they serve the fiber that calls them.
const KernelServices& kernel_services();

}  // namespace attune
