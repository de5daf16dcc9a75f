#pragma once

#include <cstdint>

namespace attune {

/// What the emulator does for a kernel. The same struct, member by member, as EmulatorServices of
/// templates/primitives/prelude/emulator.cu; `bytes` is checked when a kernel is loaded.
struct KernelServices {
  std::uint64_t bytes = sizeof(KernelServices);
  std::uint32_t (*thread_index)();
  std::uint32_t (*warp_index)();
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
  void (*store_matrices)(const char* name, const std::uint32_t* r, std::uint32_t row, std::uint32_t count,
                         bool transpose);
  void (*multiply_add)(const char* name, float* d, const std::uint32_t* a, const std::uint32_t* b, std::uint32_t k,
                       bool bf16);
  std::uint32_t (*transpose_matrix)(const char* name, std::uint32_t x);
  std::uint32_t (*shuffle_xor)(const char* name, std::uint32_t x, std::uint32_t mask);
  bool (*vote_any)(const char* name, bool x);
  std::uint32_t (*grid_size)();
  std::uint32_t (*cluster_rank)();
  void (*cluster_barrier)(const char* name);
  void (*mbarrier_init)(const char* name, std::uint32_t barrier, std::uint32_t arrivals);
  void (*mbarrier_arrive)(const char* name, std::uint32_t barrier, std::uint32_t cta, std::uint32_t bytes);
  void (*store_async)(const char* name, std::uint32_t to, std::uint32_t x, std::uint32_t barrier, std::uint32_t cta);
  bool (*mbarrier_wait)(const char* name, std::uint32_t barrier, std::uint32_t parity, std::uint32_t patience);
  void (*mbarrier_fence)();
  void (*named_barrier)(const char* name, std::uint32_t index, std::uint32_t threads, bool wait);
  void (*prefetch_tensor_map)(const char* name, const void* map);
  void (*tensor_load)(const char* name, std::uint32_t to, const void* map, std::uint32_t barrier, std::uint32_t ctas,
                      const std::int32_t* at, std::uint32_t rank);
  void (*bulk_load)(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier);
  void (*bulk_copy)(const char* name, std::uint32_t to, std::uint32_t from, std::uint32_t bytes, std::uint32_t barrier,
                    std::uint32_t cta);
  void (*tensor_store)(const char* name, const void* map, std::uint32_t from, const std::int32_t* at);
  void (*bulk_add)(const char* name, void* to, std::uint32_t from, std::uint32_t bytes);
  void (*bulk_commit)();
  void (*bulk_wait_read)(std::uint32_t pending_groups);
  void (*proxy_fence)();
  void (*set_registers)(const char* name, std::uint32_t registers);
  void (*wgmma)(const char* name, float* d, std::uint32_t n, const std::uint32_t* a, std::uint64_t a_descriptor,
                std::uint64_t b_descriptor, std::uint32_t flags);
  void (*wgmma_fence)();
  void (*wgmma_commit)();
  void (*wgmma_wait)(const char* name, std::uint32_t pending_groups);
  void (*wait_global)(const char* name, const std::uint32_t* address, std::uint32_t value);
};

/// For mbarrier_arrive, store_async and tensor_load: the CTA of the running thread.
constexpr std::uint32_t kOwnCta = 0xffffffffu;
/// Kinds of mbarrier_wait: it asks and goes on, waits a while, waits until the phase has completed.
constexpr std::uint32_t kTestWait = 0, kTryWait = 1, kWait = 2;
/// Flags of wgmma.
constexpr std::uint32_t kWgmmaAccumulate = 1, kWgmmaTransposed = 2, kWgmmaBf16 = 4, kWgmmaTransposedA = 8;

/// The services of this process; they serve the fiber that calls them.
const KernelServices& kernel_services();

}  // namespace attune
