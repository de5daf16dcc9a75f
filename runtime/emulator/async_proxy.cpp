// Hopper: who waits for what, who reads and writes which 16 bytes of shared memory, proxy fences, clusters.
#include <algorithm>
#include <bit>

#include "generator/rounding.h"
#include "runtime/emulator/cta_group.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/shared_places.h"

namespace attune {

void CtaGroup::reset_async(Cta& cta) {
  AsyncCta& state = cta.async;
  const auto threads = static_cast<std::size_t>(launch_.threads);
  state.granules.assign(ceil_div(launch_.shared_bytes, kGranuleBytes), {});
  state.barriers.clear();
  state.named_barriers = {};
  state.warpgroups.resize(ceil_div(threads, kWarpgroupThreads));
  for (Warpgroup& warpgroup : state.warpgroups) {
    warpgroup.arrived = 0;
    warpgroup.products.clear();
    warpgroup.accumulators.clear();
  }
  state.lanes.assign(threads, {});
}

void CtaGroup::exit_async() {
  Cta& cta = *current_->warp->cta;
  const Warpgroup& warpgroup = cta.async.warpgroups[current_->thread / kWarpgroupThreads];
  for (const Product& product : warpgroup.products) {
    if (product.waited >> current_->warp->index % kWarpsOfWarpgroup & 1) continue;
    fail(fmt::format("it exits while {} of its warpgroup is under way: no wgmma_wait_group covers it", product.name));
  }
  // Nobody else can wait for them, and shared memory of a CTA that has ended is another one's.
  if (const std::vector<TensorCopy>& stores = async_lane().stores; !stores.empty())
    fail(
        fmt::format("it exits while its {} still reads shared memory at {}: no cp_async_bulk_wait_group_read covers it",
                    stores.front().name, place(stores.front().shared)));
  Cluster& cluster = *cta.cluster;
  // Threads that have exited count as arrived.
  if (cluster.lanes_at_barrier && cluster.lanes_at_barrier + 1 == cluster.lanes_left) release_cluster_barrier(cluster);
}

void CtaGroup::exit_cta_async() {
  for (const Mbarrier& barrier : current_->warp->cta->async.barriers) {
    if (barrier.loads.empty()) continue;
    const TensorCopy& load = barrier.loads.front();
    fail(
        fmt::format("its CTA exits while the {} of thread {} to {} is under way: nobody has waited for it on the "
                    "mbarrier at {}",
                    load.name, load.thread, place(load.shared), place(barrier.address)));
  }
}

void CtaGroup::wait(AsyncWait reason) {
  async_lane().wait = reason;
  current_->warp->waiting |= 1u << current_->index;
  block();
}

void CtaGroup::wake(Lane& lane) {
  lane.warp->cta->async.lanes[lane.thread].wait = AsyncWait::none;
  lane.warp->waiting &= ~(1u << lane.index);
  make_ready(*lane.warp, 1u << lane.index);
}

void CtaGroup::wake(std::vector<Lane*>& lanes) {
  for (Lane* lane : lanes) wake(*lane);
  lanes.clear();
}

std::string CtaGroup::waits_of_async(const Cta& cta, const Warp& warp) const {
  const auto reason = [&](const AsyncLane& lane) -> std::string {
    switch (lane.wait) {
      case AsyncWait::mbarrier:
        return fmt::format("for parity {} of the mbarrier at {}: {}", lane.parity, place(lane.mbarrier->address),
                           missing(*lane.mbarrier));
      case AsyncWait::named_barrier: {
        const NamedBarrier& barrier = cta.async.named_barriers[lane.named_barrier];
        return fmt::format("at named barrier {}: {} of {} threads have arrived", lane.named_barrier, barrier.arrived,
                           barrier.threads);
      }
      case AsyncWait::warpgroup: {
        const Warpgroup& warpgroup = cta.async.warpgroups[warp.index / kWarpsOfWarpgroup];
        return fmt::format("in {} with {} threads of the warpgroup", warpgroup.call.name, warpgroup.arrived);
      }
      case AsyncWait::cluster:
        return "in barrier_cluster_sync";
      case AsyncWait::none:
        break;
    }
    return "";
  };
  std::string text;
  for (std::uint32_t left = warp.waiting; left;) {
    const auto lane_reason = [&](std::uint32_t lane) {
      return reason(cta.async.lanes[warp.index * kWarpLanes + lane]);
    };
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
  Granule& granule = current_->warp->cta->async.granules[granule_of(address)];
  if (granule.barrier) {
    for (const Mbarrier& barrier : cta.async.barriers) {
      if (address < barrier.address + 8 && barrier.address < address + bytes) {
        fail(fmt::format("{} {} {} bytes of shared memory at {}, where an mbarrier lies", name,
                         write ? "writes" : "reads", bytes, place(address)));
      }
    }
  }
  if (!write) {
    if (granule.copied) async_lane().unused_reads.push_back(granule_of(address));
    return;
  }
  async_lane().unused_reads.clear();
  granule.copied = false;
  check_overwritten(name, cta, address, bytes);
  const auto writer = static_cast<std::uint16_t>(current_->thread + 1);
  if (granule.writer == writer) return;
  granule.writer = writer;
  async_lane().unfenced.push_back(granule_of(address));
}

void CtaGroup::check_overwritten(const char* name, const Cta& cta, std::uint32_t address, std::uint32_t bytes) {
  const std::uint32_t end = granule_of(address + bytes - 1);
  for (std::uint32_t i = granule_of(address); i <= end; ++i) {
    if (cta.async.granules[i].readers) {
      fail(fmt::format("{} overwrites shared memory at {}{} while {} still reads it", name,
                       place(kSharedBase + i * kGranuleBytes),
                       &cta == current_->warp->cta ? "" : fmt::format(" of CTA {}", cta.block), reader_of(cta, i)));
    }
  }
}

void CtaGroup::check_reads_used(const char* name, const Cta& cta, std::uint32_t address, std::uint32_t bytes) {
  const std::uint32_t begin = granule_of(address), end = granule_of(address + bytes - 1);
  for (std::size_t thread = 0; thread < cta.async.lanes.size(); ++thread) {
    for (const std::uint32_t read : cta.async.lanes[thread].unused_reads) {
      if (read < begin || read > end) continue;
      fail(fmt::format(
          "{} overwrites shared memory at {}, which thread {} has read without using what it read: an "
          "arrival may overtake a load; arrive behind a store or a product that needs its result, or behind "
          "fence_proxy_async",
          name, place(kSharedBase + read * kGranuleBytes), thread));
    }
  }
}

std::string CtaGroup::reader_of(const Cta& cta, std::uint32_t granule) const {
  std::vector<std::uint32_t> chunks;
  for (std::size_t i = 0; i < cta.async.warpgroups.size(); ++i) {
    for (const Product& product : cta.async.warpgroups[i].products) {
      for (const MatrixOperand* operand : {&product.a, &product.b}) {
        operand->chunks(chunks);
        for (const std::uint32_t chunk : chunks) {
          if (granule_of(chunk) == granule) return fmt::format("a {} of warpgroup {}", product.name, i);
        }
      }
    }
  }
  for (std::size_t thread = 0; thread < cta.async.lanes.size(); ++thread) {
    for (const TensorCopy& store : cta.async.lanes[thread].stores) {
      if (granule >= granule_of(store.shared) && granule <= granule_of(store.shared + store.map.box_bytes() - 1)) {
        return fmt::format("a {} of thread {}", store.name, thread);
      }
    }
  }
  for (int rank = 0; rank < launch_.cluster; ++rank) {
    for (const Mbarrier& barrier : cta.cluster->ctas[rank].async.barriers) {
      for (const TensorCopy& load : barrier.loads) {
        if (load.source == &cta && granule >= granule_of(load.from) &&
            granule <= granule_of(load.from + load.map.box_bytes() - 1))
          return fmt::format("a {} of thread {}", load.name, load.thread);
      }
    }
  }
  return "something";
}

void CtaGroup::check_fenced(const char* name, const Cta& cta, std::uint32_t address) {
  const Granule& granule = cta.async.granules[granule_of(address)];
  if (granule.barrier) {
    fail(fmt::format("{} reads shared memory at {}, where an mbarrier lies", name, place(address)));
  }
  if (granule.writer) {
    fail(fmt::format("{} reads shared memory at {}, which thread {} wrote with no fence_proxy_async since", name,
                     place(address), granule.writer - 1));
  }
}

void CtaGroup::proxy_fence() {
  AsyncCta& state = current_->warp->cta->async;
  for (const std::uint32_t i : async_lane().unfenced) {
    if (state.granules[i].writer == current_->thread + 1) state.granules[i].writer = 0;
  }
  async_lane().unfenced.clear();
  async_lane().unused_reads.clear();
  fence_mbarriers();
}

void CtaGroup::fence_mbarriers() {
  for (Mbarrier& barrier : current_->warp->cta->async.barriers) {
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
    for (std::uint32_t thread = 0; thread < cta.async.lanes.size(); ++thread) {
      if (cta.async.lanes[thread].wait == AsyncWait::cluster) {
        wake(cta.warps[thread / kWarpLanes].lanes[thread % kWarpLanes]);
      }
    }
  }
}

void CtaGroup::cluster_barrier() {
  Cluster& cluster = *current_->warp->cta->cluster;
  if (++cluster.lanes_at_barrier < cluster.lanes_left) {
    wait(AsyncWait::cluster);
    return;
  }
  release_cluster_barrier(cluster);
  end_of_turn();
}

}  // namespace attune
