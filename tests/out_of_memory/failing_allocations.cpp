#include "tests/out_of_memory/failing_allocations.h"

#include <malloc.h>
#include <sqlite3.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting = false, endless = false;
std::atomic<std::int64_t> left = 0;

bool fails() noexcept {
  if (!counting.load(std::memory_order_relaxed)) return false;
  const std::int64_t before = left.fetch_sub(1);
  return before == 1 || (before < 1 && endless);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* block = nullptr;
  if (fails() || ::posix_memalign(&block, alignment, bytes != 0 ? bytes : 1) != 0) throw std::bad_alloc();
  return block;
}

constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

void* sqlite_allocate(int bytes) { return fails() ? nullptr : std::malloc(static_cast<std::size_t>(bytes)); }
void* sqlite_reallocate(void* block, int bytes) {
  return fails() ? nullptr : std::realloc(block, static_cast<std::size_t>(bytes));
}
int sqlite_size(void* block) { return static_cast<int>(::malloc_usable_size(block)); }
int sqlite_rounded(int bytes) { return (bytes + 7) & ~7; }
int sqlite_begin(void*) { return SQLITE_OK; }
void sqlite_end(void*) {}

// Before SQLite is used.
const int configured = [] {
  static const sqlite3_mem_methods kMethods = {sqlite_allocate, std::free,    sqlite_reallocate, sqlite_size,
                                               sqlite_rounded,  sqlite_begin, sqlite_end,        nullptr};
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &kMethods);
}();

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, kUsual); }
void* operator new[](std::size_t bytes) { return allocate(bytes, kUsual); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace attune::testing {

FailingAllocation::FailingAllocation(std::int64_t number, bool from_then_on) {
  if (configured != SQLITE_OK) std::abort();
  endless = from_then_on;
  left = number;
  counting = true;
}

FailingAllocation::~FailingAllocation() { counting = false; }

bool FailingAllocation::happened() const { return left <= 0; }

}  // namespace attune::testing
