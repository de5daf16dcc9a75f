#include "runtime/emulator/grid_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "generator/error.h"
#include "runtime/emulator/fiber_stacks.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/warp_instructions.h"

namespace attune {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

constexpr std::uint32_t kAllLanes = 0xffffffffu;
constexpr std::uint32_t kSharedBase = 0x400;  // not 0, so that 0 is never a valid shared address; aligned to 1024
constexpr std::size_t kSharedAlignment = 1024;
constexpr std::uint8_t kPoison = 0xff;    // all-ones bytes are NaN in fp16, bf16, fp32 and fp64
constexpr int kCollectivesPerTurn = 16;   // round robin: a warp goes on for so many before the next warp has its turn
constexpr std::uint64_t kRandomTurn = 4;  // random: one collective in so many ends the warp's turn

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
  // Lane sets. A live lane is in exactly one of ready, arrived, at_barrier, or it is the one that runs.
  std::uint32_t ready = 0;
  std::uint32_t arrived = 0;
  std::uint32_t at_barrier = 0;
  std::uint32_t exited = 0;
  std::uint32_t last_lane = 0;       // that ran
  const char* collective = nullptr;  // that `arrived` lanes wait in
  std::uint64_t variant = 0;         // operands of it that must agree between lanes
  std::array<Contribution, kWarpLanes> contributions;
};

struct Cta {
  std::uint32_t block = 0;
  bool alive = false;
  std::uint32_t lanes_left = 0;
  std::uint32_t lanes_at_barrier = 0;
  const char* barrier = nullptr;
  Warp* warps = nullptr;
  std::uint8_t* shared = nullptr;
};

struct SharedFree {
  void operator()(std::uint8_t* memory) const { std::free(memory); }
};

std::string lane_set(std::uint32_t lanes) {
  std::string text;
  for (std::uint32_t first = 0; first < kWarpLanes;) {
    if (!(lanes >> first & 1)) {
      ++first;
      continue;
    }
    std::uint32_t end = first;
    while (end < kWarpLanes && (lanes >> end & 1)) ++end;
    text += (text.empty() ? "" : ", ") +
            (end - first > 1 ? fmt::format("{}-{}", first, end - 1) : fmt::format("{}", first));
    first = end;
  }
  return (std::has_single_bit(lanes) ? "lane " : "lanes ") + text;
}

// What all host threads of a launch share.
struct LaunchState {
  LaunchState(const GridLaunch& launch, const MemoryMap& memory) : launch(launch), memory(memory) {}

  const GridLaunch& launch;
  const MemoryMap& memory;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string error;  // of the first failure

  void fail(std::string message) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) error = std::move(message);
  }
};

// Runs every host_threads-th CTA of the grid on one host thread, a few of them alive at once. Fibers switch to one
// another directly; the host thread's own context gets control only when a CTA ends, something fails, or nothing can
// run.
class CtaGroup {
 public:
  CtaGroup(LaunchState& state, std::uint32_t first, std::uint32_t step);
  void run();

  // Services of the running fiber.
  Lane& lane() { return *current_; }
  void* global_memory(const char* name, const void* address, std::uint32_t bytes, bool write);
  void* shared_memory(const char* name, std::uint32_t address, std::uint32_t bytes, bool write);
  void barrier(const char* name);
  void async_copy(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes);
  void async_wait(std::uint32_t pending_groups);
  // Adds a lane to a collective and returns when it was executed: by the last lane to arrive, for all.
  template <typename Execute>
  void collective(const char* name, std::uint64_t variant, const Contribution& contribution, const Execute& execute);

 private:
  static void lane_main(transfer_t from);
  void start_cta(Cta& cta);
  [[noreturn]] void exit_lane();
  [[noreturn]] void fail(const std::string& what);
  void check_deadlock(const Cta& cta);
  std::string waiting(const Cta& cta) const;

  void make_ready(Warp& warp, std::uint32_t lanes);
  Lane* take_next();
  void switch_to(Lane* next);
  void block();        // the running lane waits: another one runs
  void end_of_turn();  // the running lane could go on, but others may have their turn
  std::uint32_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<std::uint32_t>(random_ >> 32);
  }

  LaunchState& state_;
  const GridLaunch& launch_;
  const MemoryMap& memory_;
  const bool lazy_;
  const bool random_schedule_;
  std::uint64_t random_;
  std::uint64_t order_scale_ = 1;  // block = (order_scale * i + order_offset) mod grid: a seeded order of CTAs
  std::uint64_t order_offset_ = 0;
  std::uint64_t next_cta_;
  std::uint32_t step_;

  std::vector<Cta> ctas_;
  std::vector<Warp> warps_;
  std::vector<Lane> lanes_;
  std::vector<std::uint64_t> ready_warps_;  // one bit per warp with ready lanes
  std::unique_ptr<FiberStacks> stacks_;
  std::unique_ptr<std::uint8_t, SharedFree> shared_;

  Lane host_;  // the host thread's own context
  Lane* current_ = &host_;
  std::size_t last_warp_ = 0;
  int turn_ = kCollectivesPerTurn;
  const MemoryMap::Range* last_range_ = nullptr;
};

thread_local CtaGroup* running_group = nullptr;

CtaGroup::CtaGroup(LaunchState& state, std::uint32_t first, std::uint32_t step)
    : state_(state),
      launch_(state.launch),
      memory_(state.memory),
      lazy_(launch_.options.async == AsyncMode::lazy),
      random_schedule_(launch_.options.schedule == ScheduleMode::random),
      next_cta_(first),
      step_(step) {
  const std::uint32_t mine = (launch_.grid - first + step - 1) / step;
  const std::uint32_t alive =
      std::min<std::uint32_t>(mine, static_cast<std::uint32_t>(std::max(1, launch_.options.concurrent_ctas)));
  const auto threads = static_cast<std::uint32_t>(launch_.threads);
  const std::uint32_t warps = threads / kWarpLanes;
  const std::size_t shared_stride = (launch_.shared_bytes + kSharedAlignment) / kSharedAlignment * kSharedAlignment;

  std::uint64_t mixed = (launch_.options.seed + 1) * 0x9e3779b97f4a7c15u;
  if (random_schedule_) {  // the same on every host thread
    order_scale_ = mixed % launch_.grid | 1;
    while (std::gcd(order_scale_, std::uint64_t{launch_.grid}) != 1) ++order_scale_;
    order_offset_ = (mixed >> 32) % launch_.grid;
  }
  random_ = mixed ^ (first + 1) * 0xd1342543de82ef95u;
  if (random_ == 0) random_ = 1;

  stacks_ = std::make_unique<FiberStacks>(std::size_t{alive} * threads);
  shared_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kSharedAlignment, alive * shared_stride)));
  if (!shared_)
    throw Error(ErrorCode::driver,
                fmt::format("the emulator cannot allocate {} bytes of shared memory", alive * shared_stride));
  ctas_.resize(alive);
  warps_.resize(std::size_t{alive} * warps);
  lanes_.resize(std::size_t{alive} * threads);
  ready_warps_.assign((warps_.size() + 63) / 64, 0);
  for (std::uint32_t c = 0; c < alive; ++c) {
    ctas_[c].warps = &warps_[std::size_t{c} * warps];
    ctas_[c].shared = shared_.get() + c * shared_stride;
    for (std::uint32_t w = 0; w < warps; ++w) {
      Warp& warp = ctas_[c].warps[w];
      warp.cta = &ctas_[c];
      warp.index = w;
      warp.slot = std::size_t{c} * warps + w;
      warp.lanes = &lanes_[warp.slot * kWarpLanes];
      for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
        warp.lanes[l].warp = &warp;
        warp.lanes[l].index = l;
        warp.lanes[l].thread = w * kWarpLanes + l;
      }
    }
  }
}

void CtaGroup::run() {
  running_group = this;
  while (!state_.failed) {
    bool alive = false;
    for (Cta& cta : ctas_) {
      if (!cta.alive && next_cta_ < launch_.grid) start_cta(cta);
      if (!cta.alive) continue;
      alive = true;
      check_deadlock(cta);
    }
    if (!alive || state_.failed) break;
    switch_to(take_next());
  }
  running_group = nullptr;
}

void CtaGroup::start_cta(Cta& cta) {
  cta.block = static_cast<std::uint32_t>((order_scale_ * next_cta_ + order_offset_) % launch_.grid);
  next_cta_ += step_;
  cta.alive = true;
  cta.lanes_left = static_cast<std::uint32_t>(launch_.threads);
  cta.lanes_at_barrier = 0;
  std::memset(cta.shared, kPoison, launch_.shared_bytes);
  for (std::uint32_t w = 0; w < static_cast<std::uint32_t>(launch_.threads) / kWarpLanes; ++w) {
    Warp& warp = cta.warps[w];
    warp.arrived = warp.at_barrier = warp.exited = 0;
    warp.last_lane = kWarpLanes - 1;
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      Lane& lane = warp.lanes[l];
      lane.copies.clear();
      lane.committed_groups = 0;
      lane.context = boost::context::detail::make_fcontext(stacks_->top(warp.slot * kWarpLanes + l),
                                                           stacks_->usable_bytes(), &CtaGroup::lane_main);
    }
    make_ready(warp, kAllLanes);
  }
}

void CtaGroup::lane_main(transfer_t from) {
  static_cast<Lane*>(from.data)->context = from.fctx;
  CtaGroup& group = *running_group;
  group.launch_.entry(group.launch_.arguments);
  group.exit_lane();
}

void CtaGroup::exit_lane() {
  Warp& warp = *current_->warp;
  Cta& cta = *warp.cta;
  warp.exited |= 1u << current_->index;
  if (--cta.lanes_left == 0) {
    cta.alive = false;
    switch_to(&host_);
  }
  block();
  __builtin_unreachable();  // an exited lane is in no set, so nothing resumes it
}

void CtaGroup::fail(const std::string& what) {
  {
    const Lane& lane = *current_;
    state_.fail(fmt::format("emulator: kernel {}, CTA {}, thread {} (warp {}, lane {}): {} [{}]", launch_.kernel,
                            lane.warp->cta->block, lane.thread, lane.warp->index, lane.index, what,
                            to_string(launch_.options)));
  }
  switch_to(&host_);
  __builtin_unreachable();  // the host thread abandons all fibers after a failure
}

void CtaGroup::check_deadlock(const Cta& cta) {
  const std::uint32_t warps = static_cast<std::uint32_t>(launch_.threads) / kWarpLanes;
  for (std::uint32_t w = 0; w < warps; ++w) {
    if (cta.warps[w].ready) return;
  }
  state_.fail(fmt::format("emulator: kernel {}: deadlock in CTA {}: {} [{}]", launch_.kernel, cta.block, waiting(cta),
                          to_string(launch_.options)));
}

std::string CtaGroup::waiting(const Cta& cta) const {
  const std::uint32_t warps = static_cast<std::uint32_t>(launch_.threads) / kWarpLanes;
  std::vector<std::string> states;
  for (std::uint32_t w = 0; w < warps; ++w) {
    const Warp& warp = cta.warps[w];
    std::string text;
    const auto add = [&](std::uint32_t lanes, const std::string& what) {
      if (lanes) text += (text.empty() ? "" : ", ") + lane_set(lanes) + " " + what;
    };
    const auto wait = [](std::uint32_t lanes) { return std::has_single_bit(lanes) ? "waits in " : "wait in "; };
    add(warp.arrived, fmt::format("{}{}", wait(warp.arrived), warp.collective ? warp.collective : ""));
    add(warp.at_barrier, fmt::format("{}{}", wait(warp.at_barrier), cta.barrier ? cta.barrier : ""));
    add(warp.exited, std::has_single_bit(warp.exited) ? "has exited" : "have exited");
    states.push_back(text);
  }
  std::string sentence;
  for (std::uint32_t first = 0; first < warps;) {
    std::uint32_t end = first + 1;
    while (end < warps && states[end] == states[first]) ++end;
    sentence += (first ? "; " : "") +
                (end - first > 1 ? fmt::format("warps {}-{}: ", first, end - 1) : fmt::format("warp {}: ", first)) +
                states[first];
    first = end;
  }
  return sentence;
}

void CtaGroup::make_ready(Warp& warp, std::uint32_t lanes) {
  warp.ready |= lanes;
  if (warp.ready) ready_warps_[warp.slot / 64] |= std::uint64_t{1} << warp.slot % 64;
}

// The lane that runs next, removed from its ready set; the host's context if there is none.
Lane* CtaGroup::take_next() {
  Warp* warp = &warps_[last_warp_];
  if (turn_ <= 0 || !warp->ready) {
    turn_ = kCollectivesPerTurn;
    const std::size_t words = ready_warps_.size();
    std::size_t start = (random_schedule_ ? random() : last_warp_ + 1) % warps_.size();
    std::size_t found = warps_.size();
    std::uint64_t bits = ready_warps_[start / 64] & ~std::uint64_t{0} << start % 64;
    for (std::size_t i = 0, word = start / 64; i <= words; ++i) {
      if (bits) {
        found = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        break;
      }
      word = (word + 1) % words;
      bits = ready_warps_[word];
    }
    if (found == warps_.size()) return &host_;
    last_warp_ = found;
    warp = &warps_[found];
  }
  const std::uint32_t turn = random_schedule_ ? random() % kWarpLanes : warp->last_lane + 1;
  const std::uint32_t rotated = std::rotr(warp->ready, static_cast<int>(turn % kWarpLanes));
  const std::uint32_t lane = (turn + static_cast<std::uint32_t>(std::countr_zero(rotated))) % kWarpLanes;
  warp->ready &= ~(1u << lane);
  warp->last_lane = lane;
  if (!warp->ready) ready_warps_[warp->slot / 64] &= ~(std::uint64_t{1} << warp->slot % 64);
  return &warp->lanes[lane];
}

void CtaGroup::switch_to(Lane* next) {
  Lane* self = current_;
  if (next == self) return;
  current_ = next;
  const transfer_t from = boost::context::detail::jump_fcontext(next->context, self);
  static_cast<Lane*>(from.data)->context = from.fctx;
}

void CtaGroup::block() {
  Warp& warp = *current_->warp;
  // A CTA in which nothing can run is a deadlock, even while other CTAs go on: the host thread looks at it.
  if (!warp.ready) {
    const std::uint32_t warps = static_cast<std::uint32_t>(launch_.threads) / kWarpLanes;
    bool any = false;
    for (std::uint32_t w = 0; w < warps && !any; ++w) any = warp.cta->warps[w].ready != 0;
    if (!any) {
      switch_to(&host_);
      return;
    }
  }
  switch_to(take_next());
}

void CtaGroup::end_of_turn() {
  --turn_;
  if (random_schedule_) {
    if (random() % kRandomTurn == 0) turn_ = 0;
  } else if (turn_ > 0) {
    return;
  }
  make_ready(*current_->warp, 1u << current_->index);
  switch_to(take_next());
}

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
  execute(warp);
  warp.arrived = 0;
  make_ready(warp, kAllLanes & ~(1u << lane.index));
  end_of_turn();
}

void CtaGroup::barrier(const char* name) {
  Lane& lane = *current_;
  Cta& cta = *lane.warp->cta;
  cta.barrier = name;
  lane.warp->at_barrier |= 1u << lane.index;
  if (++cta.lanes_at_barrier < static_cast<std::uint32_t>(launch_.threads)) {
    block();
    return;
  }
  cta.lanes_at_barrier = 0;
  lane.warp->at_barrier &= ~(1u << lane.index);
  for (std::uint32_t w = 0; w < static_cast<std::uint32_t>(launch_.threads) / kWarpLanes; ++w) {
    make_ready(cta.warps[w], cta.warps[w].at_barrier);
    cta.warps[w].at_barrier = 0;
  }
  end_of_turn();
}

void* CtaGroup::global_memory(const char* name, const void* address, std::uint32_t bytes, bool write) {
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  const char* verb = write ? "writes" : "reads";
  if (begin % bytes != 0) {
    fail(fmt::format("{} {} {} bytes of global memory at {:#x}, which is not a multiple of {}", name, verb, bytes,
                     begin, bytes));
  }
  if (!last_range_ || begin < last_range_->begin || begin >= last_range_->end) last_range_ = memory_.find(begin);
  if (!last_range_) {
    fail(
        fmt::format("{} {} {} bytes of global memory at {:#x}: {}", name, verb, bytes, begin, memory_.describe(begin)));
  }
  if (bytes > last_range_->end - begin) {
    fail(fmt::format("{} {} {} bytes of global memory at {:#x}, {} of them past the end of the {} bytes at {:#x}", name,
                     verb, bytes, begin, bytes - (last_range_->end - begin), last_range_->end - last_range_->begin,
                     last_range_->begin));
  }
  return const_cast<void*>(address);
}

void* CtaGroup::shared_memory(const char* name, std::uint32_t address, std::uint32_t bytes, bool write) {
  const char* verb = write ? "writes" : "reads";
  if (address % bytes != 0) {
    fail(fmt::format("{} {} {} bytes of shared memory at {:#x}, which is not a multiple of {}", name, verb, bytes,
                     address, bytes));
  }
  if (address < kSharedBase || address - kSharedBase + std::uint64_t{bytes} > launch_.shared_bytes) {
    fail(fmt::format("{} {} {} bytes of shared memory at {:#x}; the CTA has {} bytes at {:#x}", name, verb, bytes,
                     address, launch_.shared_bytes, kSharedBase));
  }
  return current_->warp->cta->shared + (address - kSharedBase);
}

void take_effect(const AsyncCopy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(copy.to + copy.bytes, 0, 16 - copy.bytes);
}

void CtaGroup::async_copy(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes) {
  if (bytes > 16) fail(fmt::format("{} reads {} bytes; at most 16 are possible", name, bytes));
  if (reinterpret_cast<std::uint64_t>(from) % 16 != 0) {
    fail(fmt::format("{} reads global memory at {}, which is not a multiple of 16", name, fmt::ptr(from)));
  }
  if (bytes > 0) global_memory(name, from, 16, false);
  AsyncCopy copy{static_cast<std::uint8_t*>(shared_memory(name, to, 16, true)), from, bytes,
                 current_->committed_groups};
  if (lazy_) {
    std::memset(copy.to, kPoison, 16);
    current_->copies.push_back(copy);
  } else {
    take_effect(copy);
  }
}

void CtaGroup::async_wait(std::uint32_t pending_groups) {
  Lane& lane = *current_;
  std::size_t done = 0;
  while (done < lane.copies.size() && lane.copies[done].group + pending_groups < lane.committed_groups)
    take_effect(lane.copies[done++]);
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

void multiply_add_service(const char* name, float* d, const std::uint32_t* a, const std::uint32_t* b, std::uint32_t k,
                          bool bf16) {
  running_group->collective(name, 0, {d, a, b, 0}, [k, bf16](Warp& warp) {
    float* d_lanes[kWarpLanes];
    const std::uint32_t* a_lanes[kWarpLanes];
    const std::uint32_t* b_lanes[kWarpLanes];
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      d_lanes[l] = static_cast<float*>(warp.contributions[l].out);
      a_lanes[l] = static_cast<const std::uint32_t*>(warp.contributions[l].a);
      b_lanes[l] = static_cast<const std::uint32_t*>(warp.contributions[l].b);
    }
    warp_multiply_add(d_lanes, a_lanes, b_lanes, k, bf16);
  });
}

void load_matrices_service(const char* name, std::uint32_t* r, std::uint32_t row, std::uint32_t count, bool transpose) {
  CtaGroup& group = *running_group;
  // Only the first 8 * count lanes' addresses are used. Each lane checks its own, so that a message names the right
  // one.
  const void* memory = group.lane().index < 8 * count ? group.shared_memory(name, row, 16, false) : nullptr;
  group.collective(name, 0, {r, memory, nullptr, 0}, [count, transpose](Warp& warp) {
    std::uint32_t* r_lanes[kWarpLanes];
    const std::uint8_t* rows[kWarpLanes];
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      r_lanes[l] = static_cast<std::uint32_t*>(warp.contributions[l].out);
      rows[l] = static_cast<const std::uint8_t*>(warp.contributions[l].a);
    }
    warp_load_matrices(r_lanes, rows, count, transpose);
  });
}

std::uint32_t shuffle_xor_service(const char* name, std::uint32_t x, std::uint32_t mask) {
  std::uint32_t result = 0;
  running_group->collective(name, mask, {&result, nullptr, nullptr, x}, [mask](Warp& warp) {
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      *static_cast<std::uint32_t*>(warp.contributions[l].out) = warp.contributions[(l ^ mask) % kWarpLanes].x;
    }
  });
  return result;
}

bool vote_any_service(const char* name, bool x) {
  std::uint32_t result = 0;
  running_group->collective(name, 0, {&result, nullptr, nullptr, x}, [](Warp& warp) {
    std::uint32_t any = 0;
    for (const Contribution& contribution : warp.contributions) any |= contribution.x;
    for (const Contribution& contribution : warp.contributions) *static_cast<std::uint32_t*>(contribution.out) = any;
  });
  return result != 0;
}

void run_group(LaunchState& state, std::uint32_t first, std::uint32_t step) {
  try {
    CtaGroup(state, first, step).run();
  } catch (const std::exception& error) {
    state.fail(error.what());
  }
}

}  // namespace

const KernelServices& kernel_services() {
  static const KernelServices services = {
      .thread_index = [] { return running_group->lane().thread; },
      .block_index = [] { return running_group->lane().warp->cta->block; },
      .global_memory = [](const char* name, const void* address, std::uint32_t bytes,
                          bool write) { return running_group->global_memory(name, address, bytes, write); },
      .shared_base = [] { return kSharedBase; },
      .shared_memory = [](const char* name, std::uint32_t address, std::uint32_t bytes,
                          bool write) { return running_group->shared_memory(name, address, bytes, write); },
      .barrier = [](const char* name) { running_group->barrier(name); },
      .warp_barrier = [](const char* name) { running_group->collective(name, 0, {}, [](Warp&) {}); },
      .async_copy = [](const char* name, std::uint32_t to, const void* from,
                       std::uint32_t bytes) { running_group->async_copy(name, to, from, bytes); },
      .async_commit = [] { ++running_group->lane().committed_groups; },
      .async_wait = [](std::uint32_t pending_groups) { running_group->async_wait(pending_groups); },
      .load_matrices = load_matrices_service,
      .multiply_add = multiply_add_service,
      .shuffle_xor = shuffle_xor_service,
      .vote_any = vote_any_service,
  };
  return services;
}

void run_grid(const GridLaunch& launch, const MemoryMap& memory) {
  LaunchState state(launch, memory);
  std::uint32_t threads = launch.options.threads > 0 ? static_cast<std::uint32_t>(launch.options.threads)
                                                     : std::max(1u, std::thread::hardware_concurrency());
  threads = std::min(threads, launch.grid);
  std::vector<std::thread> helpers;
  try {
    for (std::uint32_t i = 1; i < threads; ++i) helpers.emplace_back(run_group, std::ref(state), i, threads);
  } catch (const std::exception& error) {
    state.fail(fmt::format("emulator: cannot start {} host threads: {}", threads, error.what()));
  }
  run_group(state, 0, threads);
  for (std::thread& helper : helpers) helper.join();
  if (state.failed) throw Error(ErrorCode::emulator, state.error);
}

}  // namespace attune
