#include "runtime/emulator/fiber_stacks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "tests/catch.h"

namespace attune {
namespace {

constexpr std::size_t kPage = 4096;

// Whether the kernel itself may read a byte: a guard page and what is not mapped make it say no, where a load would
// end the process.
bool readable(const std::byte* address) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const bool read = write(ends[1], address, 1) == 1;
  if (!read) CHECK(errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return read;
}

bool mapped(std::byte* address) {
  unsigned char resident = 0;
  return mincore(address - reinterpret_cast<std::uintptr_t>(address) % kPage, 1, &resident) == 0;
}

TEST_CASE("stacks lie apart, each above a page that nobody can touch", "[nogpu]") {
  const FiberStacks stacks(70), others(33);
  std::set<std::byte*> tops;
  for (const FiberStacks* some : {&stacks, &others}) {
    for (std::size_t i = 0; i < (some == &stacks ? 70U : 33U); ++i) {
      std::byte* top = some->top(i);
      CHECK(reinterpret_cast<std::uintptr_t>(top) % 16 == 0);
      top[-1] = std::byte{1};
      top[-static_cast<std::ptrdiff_t>(some->usable_bytes())] = std::byte{1};
      CHECK(tops.insert(top).second);
      std::byte* lowest = top - FiberStacks::kStackBytes;  // by up to a page, since tops are offset
      CHECK(!readable(lowest + (kPage - reinterpret_cast<std::uintptr_t>(lowest) % kPage) % kPage));
    }
  }
  for (auto next = tops.begin(), top = next++; next != tops.end(); top = next++)
    CHECK(static_cast<std::size_t>(*next - *top) > stacks.usable_bytes());
}

TEST_CASE("stacks that are no longer used serve the next launch, with the pages that they have", "[nogpu]") {
  std::set<std::byte*> before;
  {
    const FiberStacks stacks(64);
    for (std::size_t i = 0; i < 64; ++i) {
      before.insert(stacks.top(i));
      stacks.top(i)[-1] = std::byte{0x5a};
    }
  }
  const FiberStacks stacks(64);
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(before.count(stacks.top(i)) == 1);
    CHECK(stacks.top(i)[-1] == std::byte{0x5a});
  }
}

TEST_CASE("of very many stacks few are kept", "[nogpu]") {
  constexpr std::size_t kStacks = FiberStacks::kMostIdle + 2048;
  auto stacks = std::make_unique<FiberStacks>(kStacks);
  std::vector<std::byte*> addresses;
  for (std::size_t i = 0; i < kStacks; ++i) addresses.push_back(stacks->top(i) - 1);
  stacks.reset();
  std::size_t kept = 0;
  for (std::byte* address : addresses) kept += mapped(address) ? 1 : 0;
  CHECK(kept <= FiberStacks::kMostIdle);
  CHECK(kept > 0);
}

}  // namespace
}  // namespace attune
