#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "runtime/emulator/tensor_map.h"
#include "runtime/emulator/warpgroup_instructions.h"

namespace attune {

struct Lane;
struct Cta;

constexpr std::uint32_t kWarpgroupThreads = 128;
constexpr std::uint32_t kWarpsOfWarpgroup = 4;
constexpr std::uint32_t kGranuleBytes = 16;  // of shared memory: what accesses of both proxies are recorded by
constexpr std::uint32_t kNamedBarriers = 16;
constexpr std::uint32_t kMaxThreads = 1024;

// A box on its way between a tensor and shared memory.
struct TensorCopy {
  EmulatedTensorMap map;
  std::array<std::int32_t, 5> at{};
  std::uint32_t shared = 0;  // address
  const char* name = nullptr;
  std::uint32_t thread = 0;  // that issued it
  std::uint64_t group = 0;   // bulk group of that thread; stores only
  Cta* source = nullptr;     // of a copy from shared memory: whose, and from where
  std::uint32_t from = 0;
  bool adds = false;  // floats, to what lies in global memory
};

// An mbarrier. The emulator keeps its state; the 8 bytes in shared memory stay as they are.
struct Mbarrier {
  std::uint32_t address = 0;
  std::uint32_t arrivals = 0;  // of a phase
  std::uint32_t missing = 0;   // arrivals that the current phase lacks
  std::int64_t bytes = 0;      // expected and not yet complete; negative while copies are ahead of expect_tx
  std::uint64_t phase = 0;     // phases completed
  std::uint32_t initialiser = 0;
  bool fenced = false;            // by its initialiser, so that others than ordinary accesses of this CTA may use it
  std::vector<TensorCopy> loads;  // lazy ones that have not landed, oldest first
  std::int64_t load_bytes = 0;    // of them
  std::vector<Lane*> waiters;
};

struct NamedBarrier {
  std::uint32_t threads = 0;  // that its generation wants; 0: nobody has arrived
  std::uint32_t arrived = 0;
  std::array<std::uint32_t, kMaxThreads / 32> arrived_lanes{};  // of each warp
  std::vector<Lane*> waiters;
};

// What both proxies did to 16 bytes of shared memory.
struct Granule {
  std::uint16_t readers = 0;  // wgmma and TMA stores under way that read it
  std::uint16_t writer = 0;   // 1 + the thread whose ordinary write no proxy fence has followed; 0: none
  bool barrier = false;       // part of it is an mbarrier
  bool copied = false;        // what lies there came by a bulk copy
};

// What the threads of a warpgroup bring to a collective; all but the pointers must agree.
struct WarpgroupCall {
  const char* name = nullptr;
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  std::uint64_t group = 0;    // wgmma groups committed before
  std::uint64_t waits = 0;    // and waited for
  std::uint32_t operand = 0;  // N and flags, or the argument of another collective
  bool operator==(const WarpgroupCall&) const = default;
};

using WarpgroupRegisters = std::array<float*, kWarpgroupThreads>;
using WarpgroupFragments = std::array<const std::uint32_t*, kWarpgroupThreads>;

// Registers of d that products under way own. Lazy: NaN for the kernel, `values` (64 rows of n) for them.
struct Accumulator {
  WarpgroupRegisters d{};
  std::uint32_t n = 0;
  std::array<std::uint32_t, kWarpsOfWarpgroup> products{};  // under way, as far as each warp has waited
  std::vector<float> values;
};

// A wgmma under way: issued, and not yet covered by a wait_group of every warp.
struct Product {
  const char* name = nullptr;
  std::uint32_t n = 0;
  bool accumulate = false, bf16 = false, from_registers = false;
  MatrixOperand a{}, b{};
  WarpgroupFragments a_fragments{};
  std::vector<std::uint32_t> a_at_issue{};  // 4 per thread; lazy
  bool computed = false;
  std::uint32_t waited = 0;            // warps (a bit each) that a wait_group of theirs covers it for
  Accumulator* accumulator = nullptr;  // lazy
  std::uint64_t group = 0;
};

struct Warpgroup {
  WarpgroupCall call;
  std::uint32_t arrived = 0;
  WarpgroupRegisters d{};
  WarpgroupFragments a{};
  std::deque<Product> products;  // oldest first
  std::list<Accumulator> accumulators;
};

enum class AsyncWait { none, mbarrier, named_barrier, warpgroup, cluster };

// What a thread has under way, and what it waits for.
struct AsyncLane {
  AsyncWait wait = AsyncWait::none;
  const Mbarrier* mbarrier = nullptr;
  std::uint32_t parity = 0;
  std::uint32_t named_barrier = 0;
  std::uint32_t polls = 0;  // of barriers that have not completed, in a row
  bool wgmma_fenced = false;
  std::uint64_t wgmma_waits = 0;
  std::uint64_t wgmma_groups = 0;       // committed
  std::vector<TensorCopy> stores;       // whose shared memory is not known to have been read, oldest first
  std::uint64_t bulk_groups = 0;        // committed
  std::vector<std::uint32_t> unfenced;  // granules that it wrote since its last proxy fence
  // Copied granules that it read since it last stored, multiplied or fenced the proxies: what it read there may still
  // be on its way, since nothing has needed it yet, and an arrival at an mbarrier may overtake it.
  std::vector<std::uint32_t> unused_reads;
};

// What a CTA has of Hopper.
struct AsyncCta {
  std::vector<Granule> granules;
  std::deque<Mbarrier> barriers;  // whose addresses stay
  std::array<NamedBarrier, kNamedBarriers> named_barriers;
  std::vector<Warpgroup> warpgroups;
  std::vector<AsyncLane> lanes;  // by thread
};

}  // namespace attune
