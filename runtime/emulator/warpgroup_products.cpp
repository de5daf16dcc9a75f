// Hopper's warpgroups: registers that they pass on, products by wgmma.
#include <algorithm>
#include <cstring>

#include "runtime/emulator/cta_group.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/shared_places.h"

namespace attune {

void CtaGroup::warpgroup_collective(const WarpgroupCall& call, float* d, const std::uint32_t* a,
                                    const std::function<void(Warpgroup&)>& execute) {
  Cta& cta = *current_->warp->cta;
  const std::uint32_t index = current_->thread / kWarpgroupThreads, thread = current_->thread % kWarpgroupThreads;
  if ((index + 1) * kWarpgroupThreads > static_cast<std::uint32_t>(launch_.threads)) {
    fail(fmt::format("{} wants the 128 threads of a warpgroup; the last {} of the CTA are none", call.name,
                     static_cast<std::uint32_t>(launch_.threads) - index * kWarpgroupThreads));
  }
  Warpgroup& warpgroup = cta.async.warpgroups[index];
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
    wait(AsyncWait::warpgroup);
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

void CtaGroup::wgmma_fence() { async_lane().wgmma_fenced = true; }
void CtaGroup::wgmma_commit() { ++async_lane().wgmma_groups; }

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
  AsyncCta& state = current_->warp->cta->async;
  operand.chunks(chunks_);
  for (const std::uint32_t chunk : chunks_) {
    Granule& granule = state.granules[granule_of(chunk)];
    granule.readers = static_cast<std::uint16_t>(granule.readers + count);
  }
}

void CtaGroup::wgmma(const char* name, float* d, std::uint32_t n, const std::uint32_t* a, std::uint64_t a_descriptor,
                     std::uint64_t b_descriptor, std::uint32_t flags) {
  AsyncLane& lane = async_lane();
  lane.unused_reads.clear();
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
    if (!a) product.a = operand(name, "a", a_descriptor, 64, (flags & kWgmmaTransposedA) != 0);
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
    unpack_a(chunks_, shared, kSharedBase, product.a.mn_major, product.bf16, operands_);
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
  Warpgroup& warpgroup = warp.cta->async.warpgroups[warp.index / kWarpsOfWarpgroup];
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
  AsyncLane& lane = async_lane();
  lane.wgmma_fenced = false;
  ++lane.wgmma_waits;
  const std::uint64_t groups = lane.wgmma_groups;
  collective(name, groups << 8 | pending_groups, {}, [&](Warp& warp) {
    if (groups > pending_groups) complete(warp, groups - pending_groups);
  });
}

}  // namespace attune
