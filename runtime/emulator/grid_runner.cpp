#include "runtime/emulator/cta_group.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "generator/error.h"
#include "generator/rounding.h"
#include "runtime/emulator/kernel_services.h"

namespace attune {

constinit thread_local CtaGroup* running_group = nullptr;

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

CtaGroup::CtaGroup(LaunchState& state, std::uint32_t first, std::uint32_t step)
    : state_(state),
      launch_(state.launch),
      memory_(state.memory),
      lazy_(launch_.options.async == AsyncMode::lazy),
      random_schedule_(launch_.options.schedule == ScheduleMode::random),
      async_proxy_(launch_.async_proxy),
      next_cluster_(first),
      clusters_(launch_.grid / static_cast<std::uint32_t>(launch_.cluster)),
      step_(step) {
  const auto mine = static_cast<std::uint32_t>(ceil_div(clusters_ - first, step));
  const auto cluster_ctas = static_cast<std::uint32_t>(launch_.cluster);
  const std::uint32_t alive_clusters = std::min<std::uint32_t>(
      mine, static_cast<std::uint32_t>(std::max(1, launch_.options.concurrent_ctas / launch_.cluster)));
  const std::uint32_t alive = alive_clusters * cluster_ctas;
  const auto threads = static_cast<std::uint32_t>(launch_.threads);
  const std::uint32_t warps = threads / kWarpLanes;
  const std::size_t shared_stride = (launch_.shared_bytes + kSharedAlignment) / kSharedAlignment * kSharedAlignment;

  std::uint64_t mixed = (launch_.options.seed + 1) * 0x9e3779b97f4a7c15u;
  if (random_schedule_) {  // the same on every host thread
    order_scale_ = mixed % clusters_ | 1;
    while (std::gcd(order_scale_, clusters_) != 1) ++order_scale_;
    order_offset_ = (mixed >> 32) % clusters_;
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
  held_back_.assign(ready_warps_.size(), 0);
  running_clusters_.resize(alive_clusters);
  for (std::uint32_t c = 0; c < alive_clusters; ++c) {
    running_clusters_[c].ctas = &ctas_[std::size_t{c} * cluster_ctas];
    running_clusters_[c].warps = &warps_[std::size_t{c} * cluster_ctas * warps];
  }
  for (std::uint32_t c = 0; c < alive; ++c) {
    ctas_[c].cluster = &running_clusters_[c / cluster_ctas];
    ctas_[c].rank = c % cluster_ctas;
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
    for (Cluster& cluster : running_clusters_) {
      if (cluster.lanes_left == 0 && next_cluster_ < clusters_) start_cluster(cluster);
      if (cluster.lanes_left == 0) continue;
      alive = true;
      check_deadlock(cluster);
    }
    if (!alive || state_.failed) break;
    switch_to(take_next());
  }
  state_.read_bytes += read_bytes_;
  state_.written_bytes += written_bytes_;
  running_group = nullptr;
}

void CtaGroup::start_cluster(Cluster& cluster) {
  const auto ctas = static_cast<std::uint32_t>(launch_.cluster);
  const std::uint64_t number = (order_scale_ * next_cluster_ + order_offset_) % clusters_;
  next_cluster_ += step_;
  ++state_.progress;
  looks_in_vain_ = 0;
  cluster.lanes_left = ctas * static_cast<std::uint32_t>(launch_.threads);
  cluster.lanes_at_barrier = 0;
  for (std::uint32_t rank = 0; rank < ctas; ++rank) {
    cluster.ctas[rank].block = static_cast<std::uint32_t>(number * ctas + rank);
    start_cta(cluster.ctas[rank]);
  }
}

void CtaGroup::start_cta(Cta& cta) {
  cta.alive = true;
  cta.lanes_left = static_cast<std::uint32_t>(launch_.threads);
  cta.lanes_at_barrier = 0;
  std::memset(cta.shared, kPoison, launch_.shared_bytes);
  if (async_proxy_) reset_async(cta);
  for (std::uint32_t w = 0; w < warps_of_cta(); ++w) {
    Warp& warp = cta.warps[w];
    warp.arrived = warp.at_barrier = warp.waiting = warp.exited = 0;
    warp.last_lane = kWarpLanes - 1;
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      Lane& lane = warp.lanes[l];
      lane.copies.clear();
      lane.committed_groups = 0;
      lane.warp_index_calls = 0;
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

// On a GPU the index of a warp is a shuffle, which all of its lanes must take part in: a part of them would wait for
// the others for ever.
void CtaGroup::check_warp_index_calls(const Warp& warp) {
  std::uint32_t more = 0, fewest = warp.lanes[0].warp_index_calls;
  for (std::uint32_t l = 1; l < kWarpLanes; ++l) fewest = std::min(fewest, warp.lanes[l].warp_index_calls);
  for (std::uint32_t l = 0; l < kWarpLanes; ++l) more |= warp.lanes[l].warp_index_calls > fewest ? 1u << l : 0;
  if (more != 0) {
    fail(fmt::format(
        "divergence: {} of its warp called warp_index() where the other lanes did not; it is a shuffle of all "
        "32 lanes: call it before they part",
        lane_set(more)));
  }
}

void CtaGroup::exit_lane() {
  Warp& warp = *current_->warp;
  Cta& cta = *warp.cta;
  if (async_proxy_) exit_async();
  warp.exited |= 1u << current_->index;
  if (warp.exited == kAllLanes) check_warp_index_calls(warp);
  --cta.cluster->lanes_left;
  if (--cta.lanes_left == 0) {
    if (async_proxy_) exit_cta_async();
    cta.alive = false;
    switch_to(&host_);
  }
  block();
  __builtin_unreachable();  // an exited lane is in no set, so nothing resumes it
}

void CtaGroup::fail(const std::string& what) {
  try {
    const Lane& lane = *current_;
    state_.fail(fmt::format("emulator: kernel {}, CTA {}, thread {} (warp {}, lane {}): {} [{}]", launch_.kernel,
                            lane.warp->cta->block, lane.thread, lane.warp->index, lane.index, what,
                            to_string(launch_.options)));
  } catch (const std::bad_alloc&) {
    state_.fail_for_memory();
  }
  switch_to(&host_);
  __builtin_unreachable();  // the host thread abandons all fibers after a failure
}

bool CtaGroup::can_run(const Cluster& cluster) const {
  const std::uint32_t warps = warps_of_cta() * static_cast<std::uint32_t>(launch_.cluster);
  for (std::uint32_t w = 0; w < warps; ++w) {
    if (cluster.warps[w].ready) return true;
  }
  return false;
}

void CtaGroup::check_deadlock(const Cluster& cluster) {
  if (can_run(cluster)) return;
  std::string sentence;
  for (int rank = 0; rank < launch_.cluster; ++rank) {
    const Cta& cta = cluster.ctas[rank];
    sentence += fmt::format("{}CTA {}: {}", rank ? "; " : "", cta.block, waiting(cta));
  }
  state_.fail(
      fmt::format("emulator: kernel {}: deadlock in {} [{}]", launch_.kernel, sentence, to_string(launch_.options)));
}

std::string CtaGroup::waiting(const Cta& cta) const {
  const std::uint32_t warps = warps_of_cta();
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
    if (warp.waiting) text += (text.empty() ? "" : ", ") + waits_of_async(cta, warp);
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

// The first ready warp from `start` on, and round again; the number of warps if there is none.
std::size_t CtaGroup::ready_warp(std::size_t start, bool but_for_held_back) const {
  const std::size_t words = ready_warps_.size();
  const auto ready = [&](std::size_t word) {
    return but_for_held_back ? ready_warps_[word] & ~held_back_[word] : ready_warps_[word];
  };
  std::size_t word = start / 64;
  std::uint64_t bits = ready(word) & ~std::uint64_t{0} << start % 64;
  for (std::size_t i = 0; i <= words; ++i) {
    if (bits) return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    word = (word + 1) % words;
    bits = ready(word);
  }
  return warps_.size();
}

// Draws the warpgroup that is held back from now on, of every CTA, or none.
void CtaGroup::hold_back() {
  turns_held_back_ = random() % kMostTurnsHeldBack;
  const auto warps = static_cast<std::size_t>(launch_.threads) / kWarpLanes;
  const std::size_t groups = ceil_div(warps, std::size_t{kWarpsOfWarpgroup}), group = random() % (groups + 1);
  held_back_.assign(ready_warps_.size(), 0);
  for (std::size_t slot = 0; slot < warps_.size(); ++slot)
    if (slot % warps / kWarpsOfWarpgroup == group) held_back_[slot / 64] |= std::uint64_t{1} << slot % 64;
}

// The lane that runs next, removed from its ready set; the host's context if there is none.
Lane* CtaGroup::take_next() {
  Warp* warp = &warps_[last_warp_];
  if (turn_ <= 0 || !warp->ready) {
    turn_ = kCollectivesPerTurn;
    if (random_schedule_ && turns_held_back_-- == 0) hold_back();
    const std::size_t start = (random_schedule_ ? random() : last_warp_ + 1) % warps_.size();
    std::size_t found = ready_warp(start, true);
    if (found == warps_.size()) found = ready_warp(start, false);
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
  // A cluster in which nothing can run is a deadlock, even while other CTAs go on: the host thread looks at it.
  if (!warp.ready && !can_run(*warp.cta->cluster)) {
    switch_to(&host_);
    return;
  }
  switch_to(take_next());
}

void CtaGroup::go_on() {
  looks_in_vain_ = 0;
  if (++turns_ % kTurnsOfProgress == 0) ++state_.progress;
}

void CtaGroup::end_of_turn() {
  go_on();
  --turn_;
  if (random_schedule_) {
    if (random() % kRandomTurn == 0) turn_ = 0;
  } else if (turn_ > 0) {
    return;
  }
  make_ready(*current_->warp, 1u << current_->index);
  switch_to(take_next());
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
  for (std::uint32_t w = 0; w < warps_of_cta(); ++w) {
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
  (write ? written_bytes_ : read_bytes_) += bytes;
  if (write && async_proxy_) async_lane().unused_reads.clear();
  return const_cast<void*>(address);
}

// Whoever writes the value may run on another host thread, so that no deadlock shows here: only that nothing changes
// and that no host thread goes on. One that the system gives no processor for a while is no deadlock.
void CtaGroup::wait_global(const char* name, const std::uint32_t* address, std::uint32_t value) {
  using Clock = std::chrono::steady_clock;
  const auto* memory = static_cast<const std::uint32_t*>(global_memory(name, address, sizeof(value), false));
  std::uint32_t seen = __atomic_load_n(memory, __ATOMIC_ACQUIRE);
  std::uint64_t progress = state_.progress;
  Clock::duration waited{0};
  for (Clock::time_point last_look = Clock::now(); seen != value;) {
    if (state_.failed) switch_to(&host_);  // which abandons this lane
    if (++looks_in_vain_ > kLooksBeforeSleep) std::this_thread::sleep_for(kSleepBetweenLooks);
    turn_ = 0;
    make_ready(*current_->warp, 1u << current_->index);
    if (Lane* next = take_next(); next == current_) {
      std::this_thread::yield();
    } else {
      switch_to(next);
    }
    const std::uint32_t now = __atomic_load_n(memory, __ATOMIC_ACQUIRE);
    const std::uint64_t progress_now = state_.progress;
    const Clock::time_point look = Clock::now();
    waited += std::min<Clock::duration>(look - last_look, kMostBetweenLooks);
    if (now != seen || progress_now != progress) waited = Clock::duration{0};
    last_look = look;
    seen = now;
    progress = progress_now;
    if (waited > launch_.options.patience)
      fail(fmt::format("deadlock: {} waits for {} at {}, which stays {}", name, value, fmt::ptr(memory), seen));
  }
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
  if (async_proxy_) check_ordinary_access(name, address, bytes, write);
  return current_->warp->cta->shared + (address - kSharedBase);
}

static void take_effect(const AsyncCopy& copy) {
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

namespace {

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

void store_matrices_service(const char* name, const std::uint32_t* r, std::uint32_t row, std::uint32_t count,
                            bool transpose) {
  CtaGroup& group = *running_group;
  void* memory = group.lane().index < 8 * count ? group.shared_memory(name, row, 16, true) : nullptr;
  group.collective(name, 0, {memory, r, nullptr, 0}, [count, transpose](Warp& warp) {
    std::uint8_t* rows[kWarpLanes];
    const std::uint32_t* r_lanes[kWarpLanes];
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) {
      rows[l] = static_cast<std::uint8_t*>(warp.contributions[l].out);
      r_lanes[l] = static_cast<const std::uint32_t*>(warp.contributions[l].a);
    }
    warp_store_matrices(rows, r_lanes, count, transpose);
  });
}

std::uint32_t transpose_matrix_service(const char* name, std::uint32_t x) {
  std::uint32_t result = 0;
  running_group->collective(name, 0, {&result, nullptr, nullptr, x}, [](Warp& warp) {
    std::uint32_t x_lanes[kWarpLanes], results[kWarpLanes];
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) x_lanes[l] = warp.contributions[l].x;
    warp_transpose_matrix(results, x_lanes);
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) *static_cast<std::uint32_t*>(warp.contributions[l].out) = results[l];
  });
  return result;
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

// No exception may leave a host thread, nor run_grid() while others run.
template <typename Action>
void run_guarded(LaunchState& state, const Action& action) noexcept {
  try {
    try {
      action();
    } catch (const std::bad_alloc&) {
      state.fail_for_memory();
    } catch (const std::exception& error) {
      state.fail(error.what());
    }
  } catch (const std::bad_alloc&) {
    state.fail_for_memory();
  }
}

void run_group(LaunchState& state, std::uint32_t first, std::uint32_t step) {
  run_guarded(state, [&] { CtaGroup(state, first, step).run(); });
}

}  // namespace

const KernelServices& kernel_services() {
  static const KernelServices services = {
      .thread_index = [] { return running_group->lane().thread; },
      .warp_index =
          [] {
            Lane& lane = running_group->lane();
            ++lane.warp_index_calls;
            return lane.thread / kWarpLanes;
          },
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
      .store_matrices = store_matrices_service,
      .multiply_add = multiply_add_service,
      .transpose_matrix = transpose_matrix_service,
      .shuffle_xor = shuffle_xor_service,
      .vote_any = vote_any_service,
      .grid_size = [] { return running_group->grid(); },
      .cluster_rank = [] { return running_group->lane().warp->cta->rank; },
      .cluster_barrier = [](const char*) { running_group->cluster_barrier(); },
      .mbarrier_init = [](const char* name, std::uint32_t barrier,
                          std::uint32_t arrivals) { running_group->mbarrier_init(name, barrier, arrivals); },
      .mbarrier_arrive = [](const char* name, std::uint32_t barrier, std::uint32_t cta,
                            std::uint32_t bytes) { running_group->mbarrier_arrive(name, barrier, cta, bytes); },
      .store_async = [](const char* name, std::uint32_t to, std::uint32_t x, std::uint32_t barrier,
                        std::uint32_t cta) { running_group->store_async(name, to, x, barrier, cta); },
      .mbarrier_wait =
          [](const char* name, std::uint32_t barrier, std::uint32_t parity, std::uint32_t patience) {
            return running_group->mbarrier_wait(name, barrier, parity, patience);
          },
      .mbarrier_fence = [] { running_group->fence_mbarriers(); },
      .named_barrier = [](const char* name, std::uint32_t index, std::uint32_t threads,
                          bool wait) { running_group->named_barrier(name, index, threads, wait); },
      .prefetch_tensor_map = [](const char* name, const void* map) { running_group->prefetch_tensor_map(name, map); },
      .tensor_load = [](const char* name, std::uint32_t to, const void* map, std::uint32_t barrier, std::uint32_t ctas,
                        const std::int32_t* at,
                        std::uint32_t rank) { running_group->tensor_load(name, to, map, barrier, ctas, at, rank); },
      .bulk_load = [](const char* name, std::uint32_t to, const void* from, std::uint32_t bytes,
                      std::uint32_t barrier) { running_group->bulk_load(name, to, from, bytes, barrier); },
      .bulk_copy = [](const char* name, std::uint32_t to, std::uint32_t from, std::uint32_t bytes,
                      std::uint32_t barrier,
                      std::uint32_t cta) { running_group->bulk_copy(name, to, from, bytes, barrier, cta); },
      .tensor_store = [](const char* name, const void* map, std::uint32_t from,
                         const std::int32_t* at) { running_group->tensor_store(name, map, from, at); },
      .bulk_add = [](const char* name, void* to, std::uint32_t from,
                     std::uint32_t bytes) { running_group->bulk_add(name, to, from, bytes); },
      .bulk_commit = [] { running_group->bulk_commit(); },
      .bulk_wait_read = [](std::uint32_t pending_groups) { running_group->bulk_wait_read(pending_groups); },
      .proxy_fence = [] { running_group->proxy_fence(); },
      .set_registers = [](const char* name, std::uint32_t registers) { running_group->set_registers(name, registers); },
      .wgmma = [](const char* name, float* d, std::uint32_t n, const std::uint32_t* a, std::uint64_t a_descriptor,
                  std::uint64_t b_descriptor,
                  std::uint32_t flags) { running_group->wgmma(name, d, n, a, a_descriptor, b_descriptor, flags); },
      .wgmma_fence = [] { running_group->wgmma_fence(); },
      .wgmma_commit = [] { running_group->wgmma_commit(); },
      .wgmma_wait = [](const char* name,
                       std::uint32_t pending_groups) { running_group->wgmma_wait(name, pending_groups); },
      .wait_global = [](const char* name, const std::uint32_t* address,
                        std::uint32_t value) { running_group->wait_global(name, address, value); },
  };
  return services;
}

EmulatorTraffic run_grid(const GridLaunch& launch, const MemoryMap& memory) {
  LaunchState state(launch, memory);
  std::uint32_t threads = launch.options.threads > 0 ? static_cast<std::uint32_t>(launch.options.threads)
                                                     : std::max(1u, std::thread::hardware_concurrency());
  threads = std::min(threads, launch.grid / static_cast<std::uint32_t>(launch.cluster));
  std::vector<std::thread> helpers;
  run_guarded(state, [&] {
    try {
      for (std::uint32_t i = 1; i < threads; ++i) helpers.emplace_back(run_group, std::ref(state), i, threads);
    } catch (const std::system_error& error) {
      state.fail(fmt::format("emulator: cannot start {} host threads: {}", threads, error.what()));
    }
  });
  run_group(state, 0, threads);
  for (std::thread& helper : helpers) helper.join();
  if (state.out_of_memory) throw std::bad_alloc();
  if (state.failed) throw Error(ErrorCode::emulator, state.error);
  return {state.read_bytes, state.written_bytes};
}

}  // namespace attune
