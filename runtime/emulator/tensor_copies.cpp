// Hopper's tensor memory accelerator: loads and stores of boxes of tensors.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "runtime/emulator/cta_group.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/shared_places.h"

namespace attune {
namespace {

constexpr std::uint32_t kTileAlignment = 128;

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
  for (std::uint32_t i4 = 0; i4 < map.box[4]; ++i4) {
    for (std::uint32_t i3 = 0; i3 < map.box[3]; ++i3) {
      for (std::uint32_t i2 = 0; i2 < map.box[2]; ++i2) {
        for (std::uint32_t i1 = 0; i1 < map.box[1]; ++i1, ++row) {
          const std::int64_t at[] = {std::int64_t{copy.at[1]} + i1, std::int64_t{copy.at[2]} + i2,
                                     std::int64_t{copy.at[3]} + i3, std::int64_t{copy.at[4]} + i4};
          std::uint64_t address = map.address + static_cast<std::uint64_t>(begin) * map.element_bytes;
          bool exists = true;
          for (std::size_t dim = 0; dim < 4; ++dim) {
            exists = exists && inside(dim + 1, at[dim]);
            address += static_cast<std::uint64_t>(at[dim]) * map.strides_bytes[dim];
          }
          if (!exists) continue;
          f(static_cast<std::uint32_t>(begin - copy.at[0]), static_cast<std::uint32_t>(end - begin), address, row);
        }
      }
    }
  }
}

// Adds floats to those at `to`, which other CTAs add to as well.
void add_floats(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) {
  for (std::uint32_t byte = 0; byte < bytes; byte += sizeof(float)) {
    float x;
    std::memcpy(&x, from + byte, sizeof x);
    std::atomic_ref<float>(*reinterpret_cast<float*>(to + byte)).fetch_add(x, std::memory_order_relaxed);
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
    } else if (copy.adds) {
      add_floats(global, at, part);
    } else {
      std::memcpy(global, at, part);
    }
    global += part;
    byte += part;
  }
}

// A store reads shared memory and writes the tensor, or adds to it.
void take_effect(const TensorCopy& copy, std::uint8_t* shared) {
  for_each_row(copy, [&](std::uint32_t first, std::uint32_t columns, std::uint64_t address, std::uint32_t row) {
    copy_row(copy, shared, row, first * copy.map.element_bytes, columns * copy.map.element_bytes,
             reinterpret_cast<std::uint8_t*>(address), false);
  });
}

// Bytes that follow each other, from `address` on: a tensor of one row.
EmulatedTensorMap row_of_bytes(std::uint64_t address, std::uint32_t bytes) {
  EmulatedTensorMap map;
  const std::uint32_t elements = bytes / map.element_bytes;
  map.address = address;
  map.dims[0] = map.box[0] = elements;
  return map;
}

}  // namespace

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
  check_shared_range(copy.name, copy.shared, copy.map.box_bytes(), verb);
}

void CtaGroup::check_shared_range(const char* name, std::uint32_t address, std::uint32_t bytes, const char* verb) {
  if (address < kSharedBase || address - kSharedBase + std::uint64_t{bytes} > launch_.shared_bytes) {
    fail(fmt::format("{} {} {} bytes of shared memory at {}; the CTA has {}", name, verb, bytes, place(address),
                     launch_.shared_bytes));
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
  if (copy.source != nullptr) {
    std::memcpy(cta.shared + (copy.shared - kSharedBase), copy.source->shared + (copy.from - kSharedBase),
                copy.map.box_bytes());
    count_readers(*copy.source, copy.from, copy.map.box_bytes(), -1);
    return;
  }
  std::memset(cta.shared + (copy.shared - kSharedBase), 0, copy.map.box_bytes());
  for_each_row(copy, [&](std::uint32_t first, std::uint32_t columns, std::uint64_t address, std::uint32_t row) {
    copy_row(copy, cta.shared, row, first * copy.map.element_bytes, columns * copy.map.element_bytes,
             reinterpret_cast<std::uint8_t*>(address), true);
  });
}

void CtaGroup::tensor_load(const char* name, std::uint32_t to, const void* map, std::uint32_t barrier,
                           std::uint32_t ctas, const std::int32_t* at, std::uint32_t rank) {
  TensorCopy copy{.map = tensor_map(name, map),
                  .at = {at[0], at[1], at[2], at[3], rank > 4 ? at[4] : 0},
                  .shared = to,
                  .name = name,
                  .thread = current_->thread};
  if (copy.map.rank != rank) {
    fail(fmt::format("{} with the map of a tensor of {} dimensions", name, copy.map.rank));
  }
  const Cta& mine = *current_->warp->cta;
  if (ctas == kOwnCta) ctas = 1u << mine.rank;
  if (ctas == 0) fail(fmt::format("{} to no CTA", name));
  check_tile(copy, "writes");
  check_tensor(copy, "reads");
  bool any = false;
  for_each_row(copy, [&](std::uint32_t, std::uint32_t, std::uint64_t, std::uint32_t) { any = true; });
  if (!any && !memory_.find(copy.map.address)) {
    fail(
        fmt::format("{} of a box that lies beside its tensor as a whole, by a map that begins at {:#x}: a GPU looks "
                    "there nevertheless, and {}",
                    name, copy.map.address, memory_.describe(copy.map.address)));
  }
  for (std::uint32_t left = ctas; left; left &= left - 1)
    start_load(cta_of_cluster(name, static_cast<std::uint32_t>(std::countr_zero(left))), copy, barrier);
  end_of_turn();
}

void CtaGroup::bulk_load(const char* name, std::uint32_t to, const void* from, std::uint32_t bytes,
                         std::uint32_t barrier) {
  const auto address = reinterpret_cast<std::uint64_t>(from);
  if (to % kGranuleBytes != 0 || address % kGranuleBytes != 0 || bytes % kGranuleBytes != 0 || bytes == 0) {
    fail(fmt::format("{} of {} bytes from {:#x} to {}; all of them must be multiples of {}", name, bytes, address,
                     place(to), kGranuleBytes));
  }
  const TensorCopy copy{.map = row_of_bytes(address, bytes), .shared = to, .name = name, .thread = current_->thread};
  check_shared_range(name, to, bytes, "writes");
  check_tensor(copy, "reads");
  start_load(*current_->warp->cta, copy, barrier);
  end_of_turn();
}

// From shared memory to that of a CTA of the cluster, which is where it completes: until then the source is being read.
void CtaGroup::bulk_copy(const char* name, std::uint32_t to, std::uint32_t from, std::uint32_t bytes,
                         std::uint32_t barrier, std::uint32_t rank) {
  if (to % kGranuleBytes != 0 || from % kGranuleBytes != 0 || bytes % kGranuleBytes != 0 || bytes == 0) {
    fail(fmt::format("{} of {} bytes from {} to {}; all of them must be multiples of {}", name, bytes, place(from),
                     place(to), kGranuleBytes));
  }
  Cta& mine = *current_->warp->cta;
  check_shared_range(name, from, bytes, "reads");
  check_shared_range(name, to, bytes, "writes");
  for (std::uint32_t byte = 0; byte < bytes; byte += kGranuleBytes) check_fenced(name, mine, from + byte);
  count_readers(mine, from, bytes, 1);
  const TensorCopy copy{.map = row_of_bytes(0, bytes),
                        .shared = to,
                        .name = name,
                        .thread = current_->thread,
                        .source = &mine,
                        .from = from};
  start_load(cta_of_cluster(name, rank), copy, barrier);
  end_of_turn();
}

void CtaGroup::count_readers(Cta& cta, std::uint32_t address, std::uint32_t bytes, int count) {
  for (std::uint32_t byte = 0; byte < bytes; byte += kGranuleBytes) {
    Granule& granule = cta.async.granules[granule_of(address + byte)];
    granule.readers = static_cast<std::uint16_t>(granule.readers + count);
  }
}

// Towards the shared memory of a CTA, completing on a barrier of it.
void CtaGroup::start_load(Cta& cta, const TensorCopy& copy, std::uint32_t barrier) {
  const char* name = copy.name;
  const std::uint32_t to = copy.shared, bytes = copy.map.box_bytes(), granules = bytes / kGranuleBytes;
  Mbarrier& full = find_mbarrier(name, cta, barrier, true);
  check_overwritten(name, cta, to, bytes);
  check_reads_used(name, cta, to, bytes);
  for (const Mbarrier& other : cta.async.barriers) {
    for (const TensorCopy& load : other.loads) {
      if (to < load.shared + load.map.box_bytes() && load.shared < to + bytes) {
        fail(fmt::format("{} to {}, where a {} of thread {} to {} is still under way", name, place(to), load.name,
                         load.thread, place(load.shared)));
      }
    }
  }
  for (std::uint32_t i = granule_of(to); i < granule_of(to) + granules; ++i) {
    Granule& granule = cta.async.granules[i];
    if (granule.barrier) {
      fail(fmt::format("{} writes shared memory at {}, where an mbarrier lies", name,
                       place(kSharedBase + i * kGranuleBytes)));
    }
    granule.writer = 0;
    granule.copied = true;
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

void CtaGroup::tensor_store(const char* name, const void* map, std::uint32_t from, const std::int32_t* at) {
  constexpr const char* kCoordinates[] = {"column", "head", "row", "batch entry"};
  for (int i = 0; i < 4; ++i) {
    if (at[i] < 0)
      fail(fmt::format("{} at {} {}: a store may not begin before its tensor", name, kCoordinates[i], at[i]));
  }
  TensorCopy copy{.map = tensor_map(name, map),
                  .at = {at[0], at[1], at[2], at[3], 0},
                  .shared = from,
                  .name = name,
                  .thread = current_->thread,
                  .group = async_lane().bulk_groups};
  if (const std::uint64_t row_bytes = copy.map.dims[0] * copy.map.element_bytes; row_bytes % kGranuleBytes != 0) {
    fail(
        fmt::format("{} to a tensor whose rows have {} bytes: TMA stores {} at a time, and overwrites what lies behind",
                    name, row_bytes, kGranuleBytes));
  }
  check_tile(copy, "reads");
  start_store(copy);
}

void CtaGroup::bulk_add(const char* name, void* to, std::uint32_t from, std::uint32_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(to);
  if (address % kGranuleBytes != 0 || from % kGranuleBytes != 0 || bytes % kGranuleBytes != 0 || bytes == 0) {
    fail(fmt::format("{} of {} bytes from {} to {:#x}; all of them must be multiples of {}", name, bytes, place(from),
                     address, kGranuleBytes));
  }
  check_shared_range(name, from, bytes, "reads");
  start_store({.map = row_of_bytes(address, bytes),
               .shared = from,
               .name = name,
               .thread = current_->thread,
               .group = async_lane().bulk_groups,
               .adds = true});
}

// From shared memory, which is being read until the issuing thread has waited.
void CtaGroup::start_store(const TensorCopy& copy) {
  Cta& cta = *current_->warp->cta;
  check_tensor(copy, "writes");
  const std::uint32_t bytes = copy.map.box_bytes();
  for (std::uint32_t byte = 0; byte < bytes; byte += kGranuleBytes) check_fenced(copy.name, cta, copy.shared + byte);
  count_readers(cta, copy.shared, bytes, 1);
  async_lane().stores.push_back(copy);
  if (!lazy_) take_effect(copy, cta.shared);
}

// The running thread's `count` oldest stores have read shared memory; lazy ones do so now.
void CtaGroup::store_now(std::size_t count) {
  Cta& cta = *current_->warp->cta;
  std::vector<TensorCopy>& stores = async_lane().stores;
  for (std::size_t i = 0; i < count; ++i) {
    const TensorCopy& copy = stores[i];
    if (lazy_) take_effect(copy, cta.shared);
    count_readers(cta, copy.shared, copy.map.box_bytes(), -1);
  }
  stores.erase(stores.begin(), stores.begin() + static_cast<std::ptrdiff_t>(count));
}

void CtaGroup::bulk_commit() { ++async_lane().bulk_groups; }

void CtaGroup::bulk_wait_read(std::uint32_t pending_groups) {
  const AsyncLane& lane = async_lane();
  std::size_t done = 0;
  while (done < lane.stores.size() && lane.stores[done].group + pending_groups < lane.bulk_groups) ++done;
  store_now(done);
}

}  // namespace attune
