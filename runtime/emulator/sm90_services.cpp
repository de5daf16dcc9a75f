// Hopper's instructions: mbarriers, named barriers, clusters, TMA, wgmma.
#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/emulator/cta_group.h"
#include "runtime/emulator/kernel_services.h"

namespace attune {
namespace {

constexpr std::uint32_t kMaxArrivals = (1u << 20) - 1;
constexpr std::uint32_t kPollsBeforeBlocking = 1000;  // then a try_wait waits: a deadlock shows although threads spin
constexpr std::uint32_t kTileAlignment = 128;

std::uint32_t granule_of(std::uint32_t address) { return (address - kSharedBase) / kGranuleBytes; }

// How messages name a place in shared memory: by its distance from where the CTA's bytes begin.
std::string place(std::uint32_t address) {
  return address < kSharedBase ? fmt::format("{:#x}", address) : fmt::format("+{:#x}", address - kSharedBase);
}

bool completed(const Mbarrier& barrier, std::uint32_t parity) { return (barrier.phase & 1) != (parity & 1); }

std::string missing(const Mbarrier& barrier) {
  return fmt::format("{} of {} arrivals and {} bytes are missing", barrier.missing, barrier.arrivals, barrier.bytes);
}

// Calls f(row's first in-bounds column, columns, row's global address, row's index in the box) for each row of the box
// of which some columns exist.
template <typename F>
void for_each_row(const TensorCopy& copy, const F& f) {
  const EmulatedTensorMap& map = copy.map;
  const auto inside = [&](std::size_t dim, std::int64_t at) {
    return static_cast<std::uint64_t>(at) < map.dims[dim];  // what is negative is beyond any dim
  };
  const std::int64_t begin = std::max<std::int64_t>(copy.at[0], 0);
  const std::int64_t end =
      std::min<std::int64_t>(std::int64_t{copy.at[0]} + map.box[0], static_cast<std::int64_t>(map.dims[0]));
  if (begin >= end) return;
  std::uint32_t row = 0;
  for (std::uint32_t i3 = 0; i3 < map.box[3]; ++i3) {
    for (std::uint32_t i2 = 0; i2 < map.box[2]; ++i2) {
      for (std::uint32_t i1 = 0; i1 < map.box[1]; ++i1, ++row) {
        const std::int64_t at1 = std::int64_t{copy.at[1]} + i1, at2 = std::int64_t{copy.at[2]} + i2,
                           at3 = std::int64_t{copy.at[3]} + i3;
        if (!inside(1, at1) || !inside(2, at2) || !inside(3, at3)) continue;
        const std::uint64_t address = map.address + static_cast<std::uint64_t>(begin) * map.element_bytes +
                                      static_cast<std::uint64_t>(at1) * map.strides_bytes[0] +
                                      static_cast<std::uint64_t>(at2) * map.strides_bytes[1] +
                                      static_cast<std::uint64_t>(at3) * map.strides_bytes[2];
        f(static_cast<std::uint32_t>(begin - copy.at[0]), static_cast<std::uint32_t>(end - begin), address, row);
      }
    }
  }
}

// Copies `bytes` of row `row` of the box, from byte `begin` on, between the tensor and its swizzled place in shared
// memory.
void copy_row(const TensorCopy& copy, std::uint8_t* shared, std::uint32_t row, std::uint32_t begin, std::uint32_t bytes,
              std::uint8_t* global, bool load) {
  const std::uint32_t first = copy.shared + row * copy.map.box[0] * copy.map.element_bytes;
  for (std::uint32_t byte = begin; byte < begin + bytes;) {
    const std::uint32_t part = std::min(kGranuleBytes - byte % kGranuleBytes, begin + bytes - byte);
    const std::uint32_t chunk = swizzled(first + byte / kGranuleBytes * kGranuleBytes, copy.map.swizzle_bytes);
    std::uint8_t* at = shared + (chunk - kSharedBase) + byte % kGranuleBytes;
    if (load) {
      std::memcpy(at, global, part);
    } else {
      std::memcpy(global, at, part);
    }
    global += part;
    byte += part;
  }
}

}  // namespace

void CtaGroup::reset_sm90(Cta& cta) {
  Sm90Cta& sm90 = cta.sm90;
  const auto threads = static_cast<std::size_t>(launch_.threads);
  sm90.granules.assign((launch_.shared_bytes + kGranuleBytes - 1) / kGranuleBytes, {});
  sm90.barriers.clear();
  sm90.named_barriers = {};
  sm90.warpgroups.resize((threads + kWarpgroupThreads - 1) / kWarpgroupThreads);
  for (Warpgroup& warpgroup : sm90.warpgroups) {
    warpgroup.arrived = 0;
    warpgroup.products.clear();
    warpgroup.accumulators.clear();
  }
  sm90.lanes.assign(threads, {});
}

void CtaGroup::exit_sm90() {
  Cta& cta = *current_->warp->cta;
  const Warpgroup& warpgroup = cta.sm90.warpgroups[current_->thread / kWarpgroupThreads];
  for (const Product& product : warpgroup.products) {
    if (product.waited >> current_->warp->index % kWarpsOfWarpgroup & 1) continue;
    fail(fmt::format("it exits while {} of its warpgroup is under way: no wgmma_wait_group covers it", product.name));
  }
  store_now(sm90_lane().stores.size());
  Cluster& cluster = *cta.cluster;
  // Threads that have exited count as arrived.
  if (cluster.lanes_at_barrier && cluster.lanes_at_barrier + 1 == cluster.lanes_left) release_cluster_barrier(cluster);
}

void CtaGroup::exit_cta_sm90() {
  for (const Mbarrier& barrier : current_->warp->cta->sm90.barriers) {
    if (barrier.loads.empty()) continue;
    const TensorCopy& load = barrier.loads.front();
    fail(
        fmt::format("its CTA exits while the {} of thread {} to {} is under way: nobody has waited for it on the "
                    "mbarrier at {}",
                    load.name, load.thread, place(load.shared), place(barrier.address)));
  }
}

void CtaGroup::wait(Sm90Wait reason) {
  sm90_lane().wait = reason;
  current_->warp->waiting |= 1u << current_->index;
  block();
}

void CtaGroup::wake(Lane& lane) {
  lane.warp->cta->sm90.lanes[lane.thread].wait = Sm90Wait::none;
  lane.warp->waiting &= ~(1u << lane.index);
  make_ready(*lane.warp, 1u << lane.index);
}

void CtaGroup::wake(std::vector<Lane*>& lanes) {
  for (Lane* lane : lanes) wake(*lane);
  lanes.clear();
}

std::string CtaGroup::waits_of_sm90(const Cta& cta, const Warp& warp) const {
  const auto reason = [&](const Sm90Lane& lane) -> std::string {
    switch (lane.wait) {
      case Sm90Wait::mbarrier:
        return fmt::format("for parity {} of the mbarrier at {}: {}", lane.parity, place(lane.mbarrier->address),
                           missing(*lane.mbarrier));
      case Sm90Wait::named_barrier: {
        const NamedBarrier& barrier = cta.sm90.named_barriers[lane.named_barrier];
        return fmt::format("at named barrier {}: {} of {} threads have arrived", lane.named_barrier, barrier.arrived,
                           barrier.threads);
      }
      case Sm90Wait::warpgroup: {
        const Warpgroup& warpgroup = cta.sm90.warpgroups[warp.index / kWarpsOfWarpgroup];
        return fmt::format("in {} with {} threads of the warpgroup", warpgroup.call.name, warpgroup.arrived);
      }
      case Sm90Wait::cluster:
        return "in barrier_cluster_sync";
      case Sm90Wait::none:
        break;
    }
    return "";
  };
  std::string text;
  for (std::uint32_t left = warp.waiting; left;) {
    const auto lane_reason = [&](std::uint32_t lane) { return reason(cta.sm90.lanes[warp.index * kWarpLanes + lane]); };
    const std::string first = lane_reason(static_cast<std::uint32_t>(std::countr_zero(left)));
    std::uint32_t same = 0;
    for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if (left >> lane & 1 && lane_reason(lane) == first) same |= 1u << lane;
    }
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", lane_set(same),
                        std::has_single_bit(same) ? "waits" : "wait", first);
    left &= ~same;
  }
  return text;
}

// Ordinary accesses: ld, st, ldmatrix, cp.async. At most 16 bytes, aligned: one granule.
void CtaGroup::check_ordinary_access(const char* name, std::uint32_t address, std::uint32_t bytes, bool write) {
  const Cta& cta = *current_->warp->cta;
  Granule& granule = current_->warp->cta->sm90.granules[granule_of(address)];
  if (granule.barrier) {
    for (const Mbarrier& barrier : cta.sm90.barriers) {
      if (address < barrier.address + 8 && barrier.address < address + bytes) {
        fail(fmt::format("{} {} {} bytes of shared memory at {}, where an mbarrier lies", name,
                         write ? "writes" : "reads", bytes, place(address)));
      }
    }
  }
  if (!write) return;
  check_overwritten(name, cta, address, bytes);
  const auto writer = static_cast<std::uint16_t>(current_->thread + 1);
  if (granule.writer == writer) return;
  granule.writer = writer;
  sm90_lane().unfenced.push_back(granule_of(address));
}

void CtaGroup::check_overwritten(const char* name, const Cta& cta, std::uint32_t address, std::uint32_t bytes) {
  const std::uint32_t end = granule_of(address + bytes - 1);
  for (std::uint32_t i = granule_of(address); i <= end; ++i) {
    if (cta.sm90.granules[i].readers) {
      fail(fmt::format("{} overwrites shared memory at {}{} while {} still reads it", name,
                       place(kSharedBase + i * kGranuleBytes),
                       &cta == current_->warp->cta ? "" : fmt::format(" of CTA {}", cta.block), reader_of(cta, i)));
    }
  }
}

std::string CtaGroup::reader_of(const Cta& cta, std::uint32_t granule) const {
  std::vector<std::uint32_t> chunks;
  for (std::size_t i = 0; i < cta.sm90.warpgroups.size(); ++i) {
    for (const Product& product : cta.sm90.warpgroups[i].products) {
      for (const MatrixOperand* operand : {&product.a, &product.b}) {
        operand->chunks(chunks);
        for (const std::uint32_t chunk : chunks) {
          if (granule_of(chunk) == granule) return fmt::format("a {} of warpgroup {}", product.name, i);
        }
      }
    }
  }
  for (std::size_t thread = 0; thread < cta.sm90.lanes.size(); ++thread) {
    for (const TensorCopy& store : cta.sm90.lanes[thread].stores) {
      if (granule >= granule_of(store.shared) && granule <= granule_of(store.shared + store.map.box_bytes() - 1)) {
        return fmt::format("a {} of thread {}", store.name, thread);
      }
    }
  }
  return "something";
}

void CtaGroup::check_fenced(const char* name, const Cta& cta, std::uint32_t address) {
  const Granule& granule = cta.sm90.granules[granule_of(address)];
  if (granule.barrier) {
    fail(fmt::format("{} reads shared memory at {}, where an mbarrier lies", name, place(address)));
  }
  if (granule.writer) {
    fail(fmt::format("{} reads shared memory at {}, which thread {} wrote with no fence_proxy_async since", name,
                     place(address), granule.writer - 1));
  }
}

void CtaGroup::proxy_fence() {
  Sm90Cta& sm90 = current_->warp->cta->sm90;
  for (const std::uint32_t i : sm90_lane().unfenced) {
    if (sm90.granules[i].writer == current_->thread + 1) sm90.granules[i].writer = 0;
  }
  sm90_lane().unfenced.clear();
  fence_mbarriers();
}

void CtaGroup::fence_mbarriers() {
  for (Mbarrier& barrier : current_->warp->cta->sm90.barriers) {
    if (barrier.initialiser == current_->thread) barrier.fenced = true;
  }
}

// Clusters.

Cta& CtaGroup::cta_of_cluster(const char* name, std::uint32_t rank) {
  Cta& mine = *current_->warp->cta;
  if (rank == kOwnCta || rank == mine.rank) return mine;
  if (rank >= static_cast<std::uint32_t>(launch_.cluster)) {
    fail(fmt::format("{} to CTA {} of the cluster, which has {}", name, rank, launch_.cluster));
  }
  Cta& cta = mine.cluster->ctas[rank];
  if (!cta.alive) {
    fail(fmt::format("{} to CTA {} of the cluster (block {}), which has exited", name, rank, cta.block));
  }
  return cta;
}

void CtaGroup::release_cluster_barrier(Cluster& cluster) {
  cluster.lanes_at_barrier = 0;
  for (int rank = 0; rank < launch_.cluster; ++rank) {
    Cta& cta = cluster.ctas[rank];
    for (std::uint32_t thread = 0; thread < cta.sm90.lanes.size(); ++thread) {
      if (cta.sm90.lanes[thread].wait == Sm90Wait::cluster) {
        wake(cta.warps[thread / kWarpLanes].lanes[thread % kWarpLanes]);
      }
    }
  }
}

void CtaGroup::cluster_barrier() {
  Cluster& cluster = *current_->warp->cta->cluster;
  if (++cluster.lanes_at_barrier < cluster.lanes_left) {
    wait(Sm90Wait::cluster);
    return;
  }
  release_cluster_barrier(cluster);
  end_of_turn();
}

// Barriers.

Mbarrier& CtaGroup::find_mbarrier(const char* name, Cta& cta, std::uint32_t address, bool by_others) {
  const std::string whose = &cta == current_->warp->cta ? "" : fmt::format(" of CTA {}", cta.block);
  for (Mbarrier& barrier : cta.sm90.barriers) {
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
  Sm90Cta& sm90 = current_->warp->cta->sm90;
  if (address % 8 != 0) fail(fmt::format("{} at {}, which is not a multiple of 8", name, place(address)));
  if (address < kSharedBase || address - kSharedBase + std::uint64_t{8} > launch_.shared_bytes) {
    fail(fmt::format("{} at {}; the CTA has {} bytes at {:#x}", name, place(address), launch_.shared_bytes,
                     kSharedBase));
  }
  if (arrivals == 0 || arrivals > kMaxArrivals)
    fail(fmt::format("{} with {} arrivals; it must be 1 to {}", name, arrivals, kMaxArrivals));
  for (const Mbarrier& barrier : sm90.barriers) {
    if (barrier.address == address) fail(fmt::format("{} at {}, where an mbarrier lies already", name, place(address)));
  }
  sm90.granules[granule_of(address)].barrier = true;
  Mbarrier& barrier = sm90.barriers.emplace_back();
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

bool CtaGroup::mbarrier_wait(const char* name, std::uint32_t address, std::uint32_t parity, bool block_until_done) {
  Cta& cta = *current_->warp->cta;
  if (parity > 1) fail(fmt::format("{}: the parity {} is neither 0 nor 1", name, parity));
  Mbarrier& barrier = find_mbarrier(name, cta, address, false);
  Sm90Lane& lane = sm90_lane();
  for (bool yielded = false; !completed(barrier, parity);) {
    if (can_land(barrier)) {
      land(name, cta, barrier);
      continue;
    }
    if (!block_until_done && lane.polls < kPollsBeforeBlocking) {
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
    wait(Sm90Wait::mbarrier);
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
  NamedBarrier& barrier = current_->warp->cta->sm90.named_barriers[index];
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
    sm90_lane().named_barrier = index;
    wait(Sm90Wait::named_barrier);
    return;
  }
  barrier.threads = barrier.arrived = 0;
  barrier.arrived_lanes = {};
  wake(barrier.waiters);
  end_of_turn();
}

// TMA.

EmulatedTensorMap CtaGroup::tensor_map(const char* name, const void* map) {
  EmulatedTensorMap copy;
  std::memcpy(&copy, map, sizeof copy);
  if (copy.magic != EmulatedTensorMap::kMagic) {
    fail(fmt::format("{} with something that is no tensor map of the emulator", name));
  }
  return copy;
}

void CtaGroup::prefetch_tensor_map(const char* name, const void* map) { tensor_map(name, map); }

void CtaGroup::check_tile(const TensorCopy& copy, const char* verb) {
  const std::uint32_t alignment = std::max(kTileAlignment, 8 * copy.map.swizzle_bytes);
  if (copy.shared % alignment != 0) {
    fail(fmt::format("{} {} shared memory at {}; with a swizzle of {} bytes it must be a multiple of {}", copy.name,
                     verb, place(copy.shared), copy.map.swizzle_bytes, alignment));
  }
  if (copy.shared < kSharedBase ||
      copy.shared - kSharedBase + std::uint64_t{copy.map.box_bytes()} > launch_.shared_bytes) {
    fail(fmt::format("{} {} {} bytes of shared memory at {}; the CTA has {}", copy.name, verb, copy.map.box_bytes(),
                     place(copy.shared), launch_.shared_bytes));
  }
}

void CtaGroup::check_tensor(const TensorCopy& copy, const char* verb) {
  for_each_row(copy, [&](std::uint32_t, std::uint32_t columns, std::uint64_t address, std::uint32_t) {
    const std::uint64_t end = address + std::uint64_t{columns} * copy.map.element_bytes;
    if (!last_range_ || address < last_range_->begin || address >= last_range_->end)
      last_range_ = memory_.find(address);
    if (last_range_ && end <= last_range_->end) return;
    fail(fmt::format("{} {} {} bytes of global memory at {:#x}, as its tensor map says: {}", copy.name, verb,
                     end - address, address, memory_.describe(last_range_ ? last_range_->end : address)));
  });
}

void CtaGroup::load_now(Cta& cta, const TensorCopy& copy) {
  check_overwritten(copy.name, cta, copy.shared, copy.map.box_bytes());
  std::memset(cta.shared + (copy.shared - kSharedBase), 0, copy.map.box_bytes());
  for_each_row(copy, [&](std::uint32_t first, std::uint32_t columns, std::uint64_t address, std::uint32_t row) {
    copy_row(copy, cta.shared, row, first * copy.map.element_bytes, columns * copy.map.element_bytes,
             reinterpret_cast<std::uint8_t*>(address), true);
  });
}

void CtaGroup::tensor_load(const char* name, std::uint32_t to, const void* map, std::uint32_t barrier,
                           std::uint32_t ctas, const std::int32_t* at) {
  TensorCopy copy{.map = tensor_map(name, map),
                  .at = {at[0], at[1], at[2], at[3]},
                  .shared = to,
                  .name = name,
                  .thread = current_->thread};
  const Cta& mine = *current_->warp->cta;
  if (ctas == kOwnCta) ctas = 1u << mine.rank;
  if (ctas == 0) fail(fmt::format("{} to no CTA", name));
  check_tile(copy, "writes");
  check_tensor(copy, "reads");
  const std::uint32_t bytes = copy.map.box_bytes(), granules = bytes / kGranuleBytes;
  for (std::uint32_t left = ctas; left; left &= left - 1) {
    Cta& cta = cta_of_cluster(name, static_cast<std::uint32_t>(std::countr_zero(left)));
    Mbarrier& full = find_mbarrier(name, cta, barrier, true);
    check_overwritten(name, cta, to, bytes);
    for (const Mbarrier& other : cta.sm90.barriers) {
      for (const TensorCopy& load : other.loads) {
        if (to < load.shared + load.map.box_bytes() && load.shared < to + bytes) {
          fail(fmt::format("{} to {}, where a {} of thread {} to {} is still under way", name, place(to), load.name,
                           load.thread, place(load.shared)));
        }
      }
    }
    for (std::uint32_t i = granule_of(to); i < granule_of(to) + granules; ++i) {
      Granule& granule = cta.sm90.granules[i];
      if (granule.barrier) {
        fail(fmt::format("{} writes shared memory at {}, where an mbarrier lies", name,
                         place(kSharedBase + i * kGranuleBytes)));
      }
      granule.writer = 0;
    }
    if (lazy_) {
      std::memset(cta.shared + (to - kSharedBase), kPoison, bytes);
      full.loads.push_back(copy);
      full.load_bytes += bytes;
    } else {
      load_now(cta, copy);
      full.bytes -= bytes;
    }
    update(name, full);
  }
  end_of_turn();
}

void CtaGroup::tensor_store(const char* name, const void* map, std::uint32_t from, const std::int32_t* at) {
  constexpr const char* kCoordinates[] = {"column", "head", "row", "batch entry"};
  for (int i = 0; i < 4; ++i) {
    if (at[i] < 0)
      fail(fmt::format("{} at {} {}: a store may not begin before its tensor", name, kCoordinates[i], at[i]));
  }
  TensorCopy copy{.map = tensor_map(name, map),
                  .at = {at[0], at[1], at[2], at[3]},
                  .shared = from,
                  .name = name,
                  .thread = current_->thread,
                  .group = sm90_lane().bulk_groups};
  Cta& cta = *current_->warp->cta;
  check_tile(copy, "reads");
  check_tensor(copy, "writes");
  for (std::uint32_t byte = 0; byte < copy.map.box_bytes(); byte += kGranuleBytes) {
    check_fenced(name, cta, from + byte);
    ++cta.sm90.granules[granule_of(from + byte)].readers;
  }
  sm90_lane().stores.push_back(copy);
  if (lazy_) return;
  for_each_row(copy, [&](std::uint32_t first, std::uint32_t columns, std::uint64_t address, std::uint32_t row) {
    copy_row(copy, cta.shared, row, first * copy.map.element_bytes, columns * copy.map.element_bytes,
             reinterpret_cast<std::uint8_t*>(address), false);
  });
}

// The running thread's `count` oldest stores have read shared memory; lazy ones do so now.
void CtaGroup::store_now(std::size_t count) {
  Cta& cta = *current_->warp->cta;
  std::vector<TensorCopy>& stores = sm90_lane().stores;
  for (std::size_t i = 0; i < count; ++i) {
    const TensorCopy& copy = stores[i];
    if (lazy_) {
      for_each_row(copy, [&](std::uint32_t first, std::uint32_t columns, std::uint64_t address, std::uint32_t row) {
        copy_row(copy, cta.shared, row, first * copy.map.element_bytes, columns * copy.map.element_bytes,
                 reinterpret_cast<std::uint8_t*>(address), false);
      });
    }
    for (std::uint32_t byte = 0; byte < copy.map.box_bytes(); byte += kGranuleBytes) {
      --cta.sm90.granules[granule_of(copy.shared + byte)].readers;
    }
  }
  stores.erase(stores.begin(), stores.begin() + static_cast<std::ptrdiff_t>(count));
}

void CtaGroup::bulk_commit() { ++sm90_lane().bulk_groups; }

void CtaGroup::bulk_wait_read(std::uint32_t pending_groups) {
  const Sm90Lane& lane = sm90_lane();
  std::size_t done = 0;
  while (done < lane.stores.size() && lane.stores[done].group + pending_groups < lane.bulk_groups) ++done;
  store_now(done);
}

// Warpgroups.

void CtaGroup::warpgroup_collective(const WarpgroupCall& call, float* d, const std::uint32_t* a,
                                    const std::function<void(Warpgroup&)>& execute) {
  Cta& cta = *current_->warp->cta;
  const std::uint32_t index = current_->thread / kWarpgroupThreads, thread = current_->thread % kWarpgroupThreads;
  if ((index + 1) * kWarpgroupThreads > static_cast<std::uint32_t>(launch_.threads)) {
    fail(fmt::format("{} wants the 128 threads of a warpgroup; the last {} of the CTA are none", call.name,
                     static_cast<std::uint32_t>(launch_.threads) - index * kWarpgroupThreads));
  }
  Warpgroup& warpgroup = cta.sm90.warpgroups[index];
  if (warpgroup.arrived == 0) {
    warpgroup.call = call;
  } else if (!(warpgroup.call == call)) {
    fail(fmt::format("divergence: it calls {} while {} threads of its warpgroup wait in {}{}", call.name,
                     warpgroup.arrived, warpgroup.call.name,
                     warpgroup.call.name == call.name ? " with another operand" : ""));
  }
  warpgroup.d[thread] = d;
  warpgroup.a[thread] = a;
  if (++warpgroup.arrived < kWarpgroupThreads) {
    wait(Sm90Wait::warpgroup);
    return;
  }
  execute(warpgroup);
  warpgroup.arrived = 0;
  for (std::uint32_t w = index * kWarpsOfWarpgroup; w < (index + 1) * kWarpsOfWarpgroup; ++w) {
    Warp& warp = cta.warps[w];
    make_ready(warp, warp.waiting);  // all 128 threads are here
    warp.waiting = 0;
  }
  end_of_turn();
}

void CtaGroup::set_registers(const char* name, std::uint32_t registers) {
  if (registers % 8 != 0 || registers < 24 || registers > 256) {
    fail(fmt::format("{} of {} registers; it must be a multiple of 8 from 24 to 256", name, registers));
  }
  warpgroup_collective({.name = name, .operand = registers}, nullptr, nullptr, [](Warpgroup&) {});
}

void CtaGroup::wgmma_fence() { sm90_lane().wgmma_fenced = true; }
void CtaGroup::wgmma_commit() { ++sm90_lane().wgmma_groups; }

MatrixOperand CtaGroup::operand(const char* name, const char* which, std::uint64_t descriptor, std::uint32_t rows,
                                bool mn_major) {
  std::string complaint;
  const MatrixOperand operand = matrix_operand(descriptor, rows, mn_major, complaint);
  if (!complaint.empty()) fail(fmt::format("{}: the descriptor {:#x} of {} {}", name, descriptor, which, complaint));
  const Cta& cta = *current_->warp->cta;
  operand.chunks(chunks_);
  for (const std::uint32_t chunk : chunks_) {
    if (chunk < kSharedBase || chunk - kSharedBase + std::uint64_t{kGranuleBytes} > launch_.shared_bytes) {
      fail(fmt::format("{} reads {} from shared memory at {:#x}; the CTA has {} bytes at {:#x}", name, which, chunk,
                       launch_.shared_bytes, kSharedBase));
    }
    check_fenced(name, cta, chunk);
  }
  return operand;
}

void CtaGroup::add_readers(const MatrixOperand& operand, int count) {
  Sm90Cta& sm90 = current_->warp->cta->sm90;
  operand.chunks(chunks_);
  for (const std::uint32_t chunk : chunks_) {
    Granule& granule = sm90.granules[granule_of(chunk)];
    granule.readers = static_cast<std::uint16_t>(granule.readers + count);
  }
}

void CtaGroup::wgmma(const char* name, float* d, std::uint32_t n, const std::uint32_t* a, std::uint64_t a_descriptor,
                     std::uint64_t b_descriptor, std::uint32_t flags) {
  const Sm90Lane& lane = sm90_lane();
  if (!lane.wgmma_fenced) {
    fail(fmt::format("{} with no wgmma_fence since the kernel began or since the last wgmma_wait_group", name));
  }
  const WarpgroupCall call{.name = name,
                           .a_descriptor = a_descriptor,
                           .b_descriptor = b_descriptor,
                           .group = lane.wgmma_groups,
                           .waits = lane.wgmma_waits,
                           .operand = n << 8 | flags};
  warpgroup_collective(call, d, a, [&](Warpgroup& warpgroup) {
    Product product{.name = name,
                    .n = n,
                    .accumulate = (flags & kWgmmaAccumulate) != 0,
                    .bf16 = (flags & kWgmmaBf16) != 0,
                    .from_registers = a != nullptr};
    if (!a) product.a = operand(name, "a", a_descriptor, 64, false);
    product.b = operand(name, "b", b_descriptor, n, (flags & kWgmmaTransposed) != 0);
    product.a_fragments = warpgroup.a;
    product.group = call.group;
    add_readers(product.a, 1);
    add_readers(product.b, 1);
    issue(warpgroup, std::move(product));
  });
}

// Eager products are computed here, lazy ones take their accumulator away.
void CtaGroup::issue(Warpgroup& warpgroup, Product product) {
  const std::size_t elements = std::size_t{64} * product.n;
  if (!lazy_) {
    values_.resize(elements);
    if (product.accumulate) gather_registers(warpgroup.d.data(), kWarpsOfWarpgroup, product.n, values_.data());
    multiply(product, values_.data());
    scatter_registers(values_.data(), kWarpsOfWarpgroup, product.n, warpgroup.d.data());
    warpgroup.products.push_back(std::move(product));
    return;
  }
  for (Accumulator& accumulator : warpgroup.accumulators) {
    if (accumulator.d == warpgroup.d && accumulator.n == product.n) product.accumulator = &accumulator;
  }
  if (!product.accumulator) {
    Accumulator& accumulator = warpgroup.accumulators.emplace_back();
    accumulator.d = warpgroup.d;
    accumulator.n = product.n;
    accumulator.values.resize(elements);
    gather_registers(warpgroup.d.data(), kWarpsOfWarpgroup, product.n, accumulator.values.data());
    for (float* d : warpgroup.d) std::memset(d, kPoison, product.n / 2 * sizeof(float));
    product.accumulator = &accumulator;
  }
  for (std::uint32_t& products : product.accumulator->products) ++products;
  if (product.from_registers) {
    for (const std::uint32_t* a : product.a_fragments) product.a_at_issue.insert(product.a_at_issue.end(), a, a + 4);
  }
  warpgroup.products.push_back(std::move(product));
}

void CtaGroup::multiply(const Product& product, float* values) {
  const std::uint8_t* shared = current_->warp->cta->shared;
  if (product.from_registers) {
    unpack_a_fragments(product.a_fragments.data(), product.bf16, operands_);
  } else {
    product.a.chunks(chunks_);
    unpack_a(chunks_, shared, kSharedBase, product.bf16, operands_);
  }
  product.b.chunks(chunks_);
  unpack_b(chunks_, shared, kSharedBase, product.n, product.b.mn_major, product.bf16, operands_);
  warpgroup_multiply_add(values, product.n, product.accumulate, operands_);
}

// As far as one warp can tell, a lazy product takes effect now. Nobody may have changed its operands until the last
// warp has waited, so that it can be computed for all of them when the first one does.
void CtaGroup::complete_for_warp(Product& product, std::uint32_t warp) {
  const std::uint32_t first = warp * kWarpLanes;  // thread of the warpgroup
  if (product.from_registers) {
    for (std::uint32_t thread = first; thread < first + kWarpLanes; ++thread) {
      if (std::memcmp(product.a_fragments[thread], &product.a_at_issue[4 * thread], 16) != 0) {
        fail(
            fmt::format("registers of a were touched between the issue of a {} and the wait for it, in thread {} of "
                        "the warpgroup",
                        product.name, thread));
      }
    }
  }
  Accumulator& accumulator = *product.accumulator;
  if (!product.computed) multiply(product, accumulator.values.data());
  product.computed = true;
  if (--accumulator.products[warp] != 0) return;
  for (std::uint32_t thread = first; thread < first + kWarpLanes; ++thread) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(accumulator.d[thread]);
    const std::size_t count = accumulator.n / 2 * sizeof(float);
    if (std::all_of(bytes, bytes + count, [](std::uint8_t byte) { return byte == kPoison; })) continue;
    fail(
        fmt::format("the accumulator was touched between the issue of a {} and the wait for it, in thread {} of the "
                    "warpgroup",
                    product.name, thread));
  }
  scatter_registers(&accumulator.values[std::size_t{16} * warp * accumulator.n], 1, accumulator.n,
                    &accumulator.d[first]);
}

// A warp has waited for the products of all groups before `groups`.
void CtaGroup::complete(Warp& warp, std::uint64_t groups) {
  Warpgroup& warpgroup = warp.cta->sm90.warpgroups[warp.index / kWarpsOfWarpgroup];
  const std::uint32_t index = warp.index % kWarpsOfWarpgroup;
  for (Product& product : warpgroup.products) {
    if (product.group >= groups) break;
    if (product.waited >> index & 1) continue;
    if (lazy_) complete_for_warp(product, index);
    product.waited |= 1u << index;
  }
  while (!warpgroup.products.empty() && warpgroup.products.front().waited == (1u << kWarpsOfWarpgroup) - 1) {
    add_readers(warpgroup.products.front().a, -1);
    add_readers(warpgroup.products.front().b, -1);
    warpgroup.products.pop_front();
  }
  warpgroup.accumulators.remove_if([](const Accumulator& accumulator) {
    return std::all_of(accumulator.products.begin(), accumulator.products.end(), [](auto n) { return n == 0; });
  });
}

void CtaGroup::wgmma_wait(const char* name, std::uint32_t pending_groups) {
  Sm90Lane& lane = sm90_lane();
  lane.wgmma_fenced = false;
  ++lane.wgmma_waits;
  const std::uint64_t groups = lane.wgmma_groups;
  collective(name, groups << 8 | pending_groups, {}, [&](Warp& warp) {
    if (groups > pending_groups) complete(warp, groups - pending_groups);
  });
}

}  // namespace attune
