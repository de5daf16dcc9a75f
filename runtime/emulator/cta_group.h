#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/emulator/async_proxy_state.h"
#include "runtime/emulator/fiber_stacks.h"
#include "runtime/emulator/grid_runner.h"
#include "runtime/emulator/warp_instructions.h"

namespace attune {

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

constexpr std::uint32_t kAllLanes = 0xffffffffu;
constexpr std::uint32_t kSharedBase = 0x400;  // not 0, so that 0 is never a valid shared address; aligned to 1024
constexpr std::size_t kSharedAlignment = 1024;
constexpr int kCollectivesPerTurn = 16;   // round robin: a warp goes on for so many before the next warp has its turn
constexpr std::uint64_t kRandomTurn = 4;  // random: one collective in so many ends the warp's turn
// Random: for so many turns at most, a warpgroup of every CTA runs only while nothing else can, or none is held back.
constexpr std::uint64_t kMostTurnsHeldBack = 8192;
// Whoever waits for a value in global memory lets the processor go once its host thread has looked in vain so often.
constexpr int kLooksBeforeSleep = 200;
constexpr std::chrono::microseconds kSleepBetweenLooks{50};
constexpr std::chrono::milliseconds kMostBetweenLooks{1};  // counts as waiting: in more, who looks did not run
constexpr std::uint32_t kTurnsOfProgress = 1024;  // turns that a host thread takes before it says that it goes on

struct Warp;

struct AsyncCopy {
  std::uint8_t* to = nullptr;
  const void* from = nullptr;
  std::uint32_t bytes = 0;  // read from `from`; the rest of the 16 is zero
  std::uint64_t group = 0;
};

// One CUDA thread: a fiber, suspended in `context` unless it runs.
struct Lane {
  fcontext_t context = nullptr;
  Warp* warp = nullptr;
  std::uint32_t index = 0;        // in its warp
  std::uint32_t thread = 0;       // in its CTA
  std::vector<AsyncCopy> copies;  // lazy ones that have not taken effect, oldest first
  std::uint64_t committed_groups = 0;
  std::uint32_t warp_index_calls = 0;
};

// What a lane brings to a collective.
struct Contribution {
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  std::uint32_t x = 0;
};

struct Cta;

struct Warp {
  Cta* cta = nullptr;
  std::uint32_t index = 0;  // in its CTA
  std::size_t slot = 0;     // in the host thread's list of warps
  Lane* lanes = nullptr;
  // Lane sets. A live lane is in exactly one of ready, arrived, at_barrier, waiting, or it is the one that runs.
  std::uint32_t ready = 0;
  std::uint32_t arrived = 0;
  std::uint32_t at_barrier = 0;
  std::uint32_t waiting = 0;  // for what AsyncLane::wait says
  std::uint32_t exited = 0;
  std::uint32_t last_lane = 0;       // that ran
  const char* collective = nullptr;  // that `arrived` lanes wait in
  std::uint64_t variant = 0;         // operands of it that must agree between lanes
  std::array<Contribution, kWarpLanes> contributions;
};

struct Cluster;

struct Cta {
  std::uint32_t block = 0;
  std::uint32_t rank = 0;  // in its cluster
  Cluster* cluster = nullptr;
  bool alive = false;
  std::uint32_t lanes_left = 0;
  std::uint32_t lanes_at_barrier = 0;
  const char* barrier = nullptr;
  Warp* warps = nullptr;
  std::uint8_t* shared = nullptr;
  AsyncCta async;
};

// CTAs that are alive together; of one CTA unless the launch says otherwise.
struct Cluster {
  Cta* ctas = nullptr;
  Warp* warps = nullptr;  // of all of them
  std::uint32_t lanes_left = 0;
  std::uint32_t lanes_at_barrier = 0;
};

struct SharedFree {
  void operator()(std::uint8_t* memory) const { std::free(memory); }
};

// What all host threads of a launch share.
struct LaunchState {
  LaunchState(const GridLaunch& launch, const MemoryMap& memory) : launch(launch), memory(memory) {}

  const GridLaunch& launch;
  const MemoryMap& memory;
  std::atomic<bool> failed{false};
  std::atomic<std::uint64_t> read_bytes{0}, written_bytes{0};  // of global memory
  std::atomic<std::uint64_t> progress{0};                      // changes while any host thread goes on
  std::mutex mutex;
  std::string error;  // of the first failure
  std::atomic<bool> out_of_memory{false};

  void fail(std::string message) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) error = std::move(message);
  }
  // What needs no memory to be told.
  void fail_for_memory() noexcept {
    out_of_memory = true;
    failed = true;
  }
};

// Runs every host_threads-th cluster of the grid on one host thread, a few of them alive at once. Fibers switch to one
// another directly; the host thread's own context gets control only when a CTA ends, something fails, or nothing can
// run.
class CtaGroup {
 public:
  CtaGroup(LaunchState& state, std::uint32_t first, std::uint32_t step);
  void run();

  // Services of the running fiber.
  Lane& lane() { return *current_; }
  void* global_memory(const char* name, const void* address, std::uint32_t bytes, bool write);
  void wait_global(const char* name, const std::uint32_t* address, std::uint32_t value);
  void* shared_memory(const char* name, std::uint32_t address, std::uint32_t bytes, bool write);
  void barrier(const char* name);
  void async_copy(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes);
  void async_wait(std::uint32_t pending_groups);
  // Where all lanes of a warp have arrived, or exited.
  void check_warp_index_calls(const Warp& warp);
  // Adds a lane to a collective and returns when it was executed: by the last lane to arrive, for all.
  template <typename Execute>
  void collective(const char* name, std::uint64_t variant, const Contribution& contribution, const Execute& execute);

  // Those of Hopper, in async_proxy.cpp.
  std::uint32_t grid() const { return launch_.grid; }
  void cluster_barrier();
  void mbarrier_init(const char* name, std::uint32_t address, std::uint32_t arrivals);
  void mbarrier_arrive(const char* name, std::uint32_t address, std::uint32_t cta, std::uint32_t bytes);
  void store_async(const char* name, std::uint32_t to, std::uint32_t x, std::uint32_t barrier, std::uint32_t cta);
  bool mbarrier_wait(const char* name, std::uint32_t address, std::uint32_t parity, std::uint32_t patience);
  void fence_mbarriers();
  void named_barrier(const char* name, std::uint32_t index, std::uint32_t threads, bool wait);
  void prefetch_tensor_map(const char* name, const void* map);
  void tensor_load(const char* name, std::uint32_t to, const void* map, std::uint32_t barrier, std::uint32_t ctas,
                   const std::int32_t* at, std::uint32_t rank);
  void bulk_load(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier);
  void bulk_copy(const char* name, std::uint32_t to, std::uint32_t from, std::uint32_t bytes, std::uint32_t barrier,
                 std::uint32_t cta);
  void tensor_store(const char* name, const void* map, std::uint32_t from, const std::int32_t* at);
  void bulk_add(const char* name, void* to, std::uint32_t from, std::uint32_t bytes);
  void bulk_commit();
  void bulk_wait_read(std::uint32_t pending_groups);
  void proxy_fence();
  void set_registers(const char* name, std::uint32_t registers);
  void wgmma(const char* name, float* d, std::uint32_t n, const std::uint32_t* a, std::uint64_t a_descriptor,
             std::uint64_t b_descriptor, std::uint32_t flags);
  void wgmma_fence();
  void wgmma_commit();
  void wgmma_wait(const char* name, std::uint32_t pending_groups);

 private:
  static void lane_main(transfer_t from);
  void start_cluster(Cluster& cluster);
  void start_cta(Cta& cta);
  [[noreturn]] void exit_lane();
  [[noreturn]] void fail(const std::string& what);
  void check_deadlock(const Cluster& cluster);
  std::string waiting(const Cta& cta) const;
  std::uint32_t warps_of_cta() const { return static_cast<std::uint32_t>(launch_.threads) / kWarpLanes; }
  bool can_run(const Cluster& cluster) const;  // any lane of it

  void make_ready(Warp& warp, std::uint32_t lanes);
  Lane* take_next();
  std::size_t ready_warp(std::size_t start, bool but_for_held_back) const;
  void hold_back();
  void switch_to(Lane* next);
  void block();        // the running lane waits: another one runs
  void end_of_turn();  // the running lane could go on, but others may have their turn
  void go_on();        // a lane did something other than wait
  std::uint32_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<std::uint32_t>(random_ >> 32);
  }

  // Hopper's instructions, in async_proxy.cpp.
  void reset_async(Cta& cta);
  void exit_async();      // the running lane exits
  void exit_cta_async();  // and it was the last one of its CTA
  std::string waits_of_async(const Cta& cta, const Warp& warp) const;
  void check_ordinary_access(const char* name, std::uint32_t address, std::uint32_t bytes, bool write);
  std::string reader_of(const Cta& cta, std::uint32_t granule) const;
  AsyncLane& async_lane() { return current_->warp->cta->async.lanes[current_->thread]; }
  void wait(AsyncWait reason);
  void wake(Lane& lane);
  void wake(std::vector<Lane*>& lanes);
  void release_cluster_barrier(Cluster& cluster);
  Cta& cta_of_cluster(const char* name, std::uint32_t rank);
  Mbarrier& find_mbarrier(const char* name, Cta& cta, std::uint32_t address, bool by_others);
  void update(const char* name, Mbarrier& barrier);
  bool can_land(const Mbarrier& barrier) const;
  void land(const char* name, Cta& cta, Mbarrier& barrier);
  EmulatedTensorMap tensor_map(const char* name, const void* map);
  void check_tile(const TensorCopy& copy, const char* verb);
  void check_shared_range(const char* name, std::uint32_t address, std::uint32_t bytes, const char* verb);
  void check_tensor(const TensorCopy& copy, const char* verb);
  void check_overwritten(const char* name, const Cta& cta, std::uint32_t address, std::uint32_t bytes);
  void check_reads_used(const char* name, const Cta& cta, std::uint32_t address, std::uint32_t bytes);
  void check_fenced(const char* name, const Cta& cta, std::uint32_t address);
  void count_readers(Cta& cta, std::uint32_t address, std::uint32_t bytes, int count);
  void start_load(Cta& cta, const TensorCopy& copy, std::uint32_t barrier);
  void start_store(const TensorCopy& copy);
  void load_now(Cta& cta, const TensorCopy& copy);
  void store_now(std::size_t count);
  void warpgroup_collective(const WarpgroupCall& call, float* d, const std::uint32_t* a,
                            const std::function<void(Warpgroup&)>& execute);
  MatrixOperand operand(const char* name, const char* which, std::uint64_t descriptor, std::uint32_t rows,
                        bool mn_major);
  void issue(Warpgroup& warpgroup, Product product);
  void complete(Warp& warp, std::uint64_t groups);
  void complete_for_warp(Product& product, std::uint32_t warp);
  void multiply(const Product& product, float* values);
  void add_readers(const MatrixOperand& operand, int count);

  LaunchState& state_;
  const GridLaunch& launch_;
  const MemoryMap& memory_;
  const bool lazy_;
  const bool random_schedule_;
  std::uint64_t random_;
  const bool async_proxy_;         // whether the kernel may use Hopper's instructions: shared memory is watched
  std::uint64_t order_scale_ = 1;  // cluster = (order_scale * i + order_offset) mod clusters: a seeded order of them
  std::uint64_t order_offset_ = 0;
  std::uint64_t next_cluster_;
  std::uint64_t clusters_;  // of the grid
  std::uint32_t step_;

  std::vector<Cta> ctas_;
  std::vector<Cluster> running_clusters_;
  std::vector<Warp> warps_;
  std::vector<Lane> lanes_;
  std::vector<std::uint64_t> ready_warps_;  // one bit per warp with ready lanes
  std::vector<std::uint64_t> held_back_;    // likewise, of the random schedule
  std::uint64_t turns_held_back_ = 0;       // left
  std::unique_ptr<FiberStacks> stacks_;
  std::unique_ptr<std::uint8_t, SharedFree> shared_;

  Lane host_;  // the host thread's own context
  Lane* current_ = &host_;
  std::size_t last_warp_ = 0;
  int turn_ = kCollectivesPerTurn;
  std::uint32_t turns_ = 0;  // of progress
  int looks_in_vain_ = 0;    // at global memory, since the last progress
  const MemoryMap::Range* last_range_ = nullptr;
  std::uint64_t read_bytes_ = 0, written_bytes_ = 0;  // of global memory

  WarpgroupOperands operands_;         // scratch of wgmma
  std::vector<std::uint32_t> chunks_;  // scratch: of an operand
  std::vector<float> values_;          // scratch: of an accumulator
};

extern constinit thread_local CtaGroup* running_group;  // of this host thread

/// "lanes 0-3, 8": for messages.
std::string lane_set(std::uint32_t lanes);

template <typename Execute>
void CtaGroup::collective(const char* name, std::uint64_t variant, const Contribution& contribution,
                          const Execute& execute) {
  Lane& lane = *current_;
  Warp& warp = *lane.warp;
  if (warp.arrived == 0) {
    warp.collective = name;
    warp.variant = variant;
  } else if (warp.collective != name || warp.variant != variant) {
    fail(fmt::format(
        "divergence: it calls {} while {} of its warp wait in {}{}; a collective wants all 32 lanes at the same call",
        name, lane_set(warp.arrived), warp.collective, warp.collective == name ? " with another operand" : ""));
  }
  warp.contributions[lane.index] = contribution;
  warp.arrived |= 1u << lane.index;
  if (warp.arrived != kAllLanes) {
    block();
    return;
  }
  check_warp_index_calls(warp);
  execute(warp);
  warp.arrived = 0;
  make_ready(warp, kAllLanes & ~(1u << lane.index));
  end_of_turn();
}

}  // namespace attune
