// Hopper's barriers: mbarriers with phases and bytes, named barriers.
#include <cstring>

#include "runtime/emulator/cta_group.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/shared_places.h"

namespace attune {
namespace {

constexpr std::uint32_t kMaxArrivals = (1u << 20) - 1;
constexpr std::uint32_t kPollsBeforeBlocking = 1000;  // then a try_wait waits: a deadlock shows although threads spin
constexpr std::uint32_t kMostPolls = 1u << 20;  // of a test_wait, which may poll several in turn and so never waits

bool completed(const Mbarrier& barrier, std::uint32_t parity) { return (barrier.phase & 1) != (parity & 1); }

}  // namespace

Mbarrier& CtaGroup::find_mbarrier(const char* name, Cta& cta, std::uint32_t address, bool by_others) {
  const std::string whose = &cta == current_->warp->cta ? "" : fmt::format(" of CTA {}", cta.block);
  for (Mbarrier& barrier : cta.async.barriers) {
    if (barrier.address != address) continue;
    if (by_others && !barrier.fenced) {
      fail(
          fmt::format("{} on the mbarrier at {}{}: thread {}, which initialised it, has not called "
                      "fence_mbarrier_init since",
                      name, place(address), whose, barrier.initialiser));
    }
    return barrier;
  }
  fail(fmt::format("{} on the mbarrier at {}{}, which nobody has initialised", name, place(address), whose));
}

void CtaGroup::mbarrier_init(const char* name, std::uint32_t address, std::uint32_t arrivals) {
  AsyncCta& state = current_->warp->cta->async;
  if (address % 8 != 0) fail(fmt::format("{} at {}, which is not a multiple of 8", name, place(address)));
  if (address < kSharedBase || address - kSharedBase + std::uint64_t{8} > launch_.shared_bytes) {
    fail(fmt::format("{} at {}; the CTA has {} bytes at {:#x}", name, place(address), launch_.shared_bytes,
                     kSharedBase));
  }
  if (arrivals == 0 || arrivals > kMaxArrivals)
    fail(fmt::format("{} with {} arrivals; it must be 1 to {}", name, arrivals, kMaxArrivals));
  for (const Mbarrier& barrier : state.barriers) {
    if (barrier.address == address) fail(fmt::format("{} at {}, where an mbarrier lies already", name, place(address)));
  }
  state.granules[granule_of(address)].barrier = true;
  Mbarrier& barrier = state.barriers.emplace_back();
  barrier.address = address;
  barrier.arrivals = barrier.missing = arrivals;
  barrier.initialiser = current_->thread;
}

bool CtaGroup::can_land(const Mbarrier& barrier) const {
  return !barrier.loads.empty() && barrier.missing == 0 && barrier.load_bytes >= barrier.bytes;
}

// After a change: completes the phase if nothing is missing, and wakes those who then have something to do.
void CtaGroup::update(const char* name, Mbarrier& barrier) {
  if (barrier.missing == 0 && barrier.bytes < 0) {
    fail(fmt::format("{}: {} bytes more have completed on the mbarrier at {} than its phase expects", name,
                     -barrier.bytes, place(barrier.address)));
  }
  if (barrier.missing == 0 && barrier.bytes == 0) {
    ++barrier.phase;
    barrier.missing = barrier.arrivals;
    wake(barrier.waiters);
  } else if (can_land(barrier)) {
    wake(barrier.waiters);
  }
}

// Lazy copies reach shared memory when a thread that waits for them could not wait any longer.
void CtaGroup::land(const char* name, Cta& cta, Mbarrier& barrier) {
  const std::uint64_t phase = barrier.phase;
  while (!barrier.loads.empty() && barrier.phase == phase) {
    const TensorCopy load = barrier.loads.front();
    barrier.loads.erase(barrier.loads.begin());
    load_now(cta, load);
    barrier.load_bytes -= load.map.box_bytes();
    barrier.bytes -= load.map.box_bytes();
    update(name, barrier);
  }
}

void CtaGroup::mbarrier_arrive(const char* name, std::uint32_t address, std::uint32_t rank, std::uint32_t bytes) {
  Mbarrier& barrier = find_mbarrier(name, cta_of_cluster(name, rank), address, rank != kOwnCta);
  if (bytes > kMaxArrivals) fail(fmt::format("{} expects {} bytes; a phase takes {}", name, bytes, kMaxArrivals));
  if (barrier.missing == 0) {
    fail(fmt::format("{} on the mbarrier at {}, whose phase wants {} arrivals and has them all; {} bytes are missing",
                     name, place(address), barrier.arrivals, barrier.bytes));
  }
  barrier.bytes += bytes;
  --barrier.missing;
  update(name, barrier);
  end_of_turn();
}

// Takes effect at issue, whatever the mode.
void CtaGroup::store_async(const char* name, std::uint32_t to, std::uint32_t x, std::uint32_t address,
                           std::uint32_t rank) {
  Cta& cta = cta_of_cluster(name, rank);
  Mbarrier& barrier = find_mbarrier(name, cta, address, true);
  if (to % sizeof x != 0) fail(fmt::format("{} to {}, which is not a multiple of {}", name, place(to), sizeof x));
  if (to < kSharedBase || to - kSharedBase + std::uint64_t{sizeof x} > launch_.shared_bytes) {
    fail(fmt::format("{} writes {} bytes of shared memory at {}; the CTA has {}", name, sizeof x, place(to),
                     launch_.shared_bytes));
  }
  check_overwritten(name, cta, to, sizeof x);
  std::memcpy(cta.shared + (to - kSharedBase), &x, sizeof x);
  barrier.bytes -= sizeof x;
  update(name, barrier);
  end_of_turn();
}

bool CtaGroup::mbarrier_wait(const char* name, std::uint32_t address, std::uint32_t parity, std::uint32_t patience) {
  Cta& cta = *current_->warp->cta;
  if (parity > 1) fail(fmt::format("{}: the parity {} is neither 0 nor 1", name, parity));
  Mbarrier& barrier = find_mbarrier(name, cta, address, false);
  AsyncLane& lane = async_lane();
  for (bool yielded = false; !completed(barrier, parity);) {
    if (can_land(barrier)) {
      land(name, cta, barrier);
      continue;
    }
    if (patience == kTestWait && lane.polls == kMostPolls) {
      fail(fmt::format("{} of the mbarrier at {}, parity {}: the thread has polled {} times in a row in vain", name,
                       place(address), parity, kMostPolls));
    }
    if (patience == kTestWait || (patience == kTryWait && lane.polls < kPollsBeforeBlocking)) {
      if (yielded) return false;
      yielded = true;
      ++lane.polls;
      turn_ = 0;
      make_ready(*current_->warp, 1u << current_->index);
      switch_to(take_next());
      continue;
    }
    barrier.waiters.push_back(current_);
    lane.mbarrier = &barrier;
    lane.parity = parity & 1;
    wait(AsyncWait::mbarrier);
  }
  lane.polls = 0;
  return true;
}

void CtaGroup::named_barrier(const char* name, std::uint32_t index, std::uint32_t threads, bool wait_for_others) {
  if (index == 0 || index >= kNamedBarriers) {
    fail(fmt::format("{} of barrier {}; there are 1 to {}", name, index, kNamedBarriers - 1));
  }
  if (threads == 0 || threads % kWarpLanes != 0 || threads > static_cast<std::uint32_t>(launch_.threads)) {
    fail(fmt::format("{} of barrier {} with {} threads; it must be a multiple of 32 up to the CTA's {}", name, index,
                     threads, launch_.threads));
  }
  NamedBarrier& barrier = current_->warp->cta->async.named_barriers[index];
  if (barrier.threads == 0) barrier.threads = threads;
  if (barrier.threads != threads) {
    fail(fmt::format("{} of barrier {} with {} threads, where others have come with {}", name, index, threads,
                     barrier.threads));
  }
  std::uint32_t& lanes = barrier.arrived_lanes[current_->warp->index];
  if (lanes >> current_->index & 1) {
    fail(fmt::format("{} of barrier {} for the second time, while {} of {} threads have arrived", name, index,
                     barrier.arrived, threads));
  }
  lanes |= 1u << current_->index;
  if (++barrier.arrived < threads) {
    if (!wait_for_others) return;
    barrier.waiters.push_back(current_);
    async_lane().named_barrier = index;
    wait(AsyncWait::named_barrier);
    return;
  }
  barrier.threads = barrier.arrived = 0;
  barrier.arrived_lanes = {};
  wake(barrier.waiters);
  end_of_turn();
}

}  // namespace attune
