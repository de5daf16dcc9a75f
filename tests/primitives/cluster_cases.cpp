#include "tests/primitives/cluster_cases.h"

#include <string>

#include "tests/primitives/sm90_case.h"
#include "tests/primitives/tensor_boxes.h"

namespace attune::tests {

void add_cluster_cases(std::vector<PrimitiveCase>& cases) {
  {
    // Each CTA says that it has come to the barrier of the next one of its cluster, and waits at its own.
    PrimitiveCase test{"cluster_cta_rank barrier_cluster_sync mbarrier_arrive_cluster grid_size",
                       sm90_kernel(R"(
const u32 barrier = shared_base(), rank = cluster_cta_rank();
if (thread == 0) {
  mbarrier_init(barrier, 64);
  fence_mbarrier_init();
}
barrier_cluster_sync();
for (u32 round = 0; round < 3; ++round) {
  mbarrier_arrive_cluster(barrier, rank ^ 1);
  mbarrier_wait_parity(barrier, round & 1);
  barrier_cluster_sync();  // nobody is a round ahead of one who has yet to look at the barrier
}
st_global_v4_b32(out_bytes(args, 16 * (64 * block_index() + thread)), Vec4{rank, block_index(), grid_size(), thread});
barrier_cluster_sync();
)",
                                   64, 8, 6),
                       {},
                       6 * 64 * 16,
                       {}};
    test.kernel.cluster = 2;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t block = 0; block < 6; ++block) {
      for (std::uint32_t thread = 0; thread < 64; ++thread)
        expected.insert(expected.end(), {block % 2, block, 6, thread});
    }
    test.complaint = exactly(expected);
    cases.push_back(test);
  }
  {
    // Each CTA sends its number to the other one of its cluster.
    PrimitiveCase test{"st_async_cluster_b32",
                       sm90_kernel(R"(
const u32 barrier = shared_base(), number = shared_base() + 12;
if (thread == 0) {
  mbarrier_init(barrier, 1);
  fence_mbarrier_init();
}
barrier_cluster_sync();
if (thread == 0) {
  mbarrier_arrive_expect_tx(barrier, 4);
  st_async_cluster_b32(number, 100 + block_index(), barrier, cluster_cta_rank() ^ 1);
}
mbarrier_wait_parity(barrier, 0);
st_global_v4_b32(out_bytes(args, 16 * (32 * block_index() + thread)), Vec4{ld_shared_b32(number), block_index(), thread, 0});
barrier_cluster_sync();
)",
                                   32, 16, 6),
                       {},
                       6 * 32 * 16,
                       {}};
    test.kernel.cluster = 2;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t block = 0; block < 6; ++block) {
      for (std::uint32_t thread = 0; thread < 32; ++thread)
        expected.insert(expected.end(), {100 + (block ^ 1), block, thread, 0});
    }
    test.complaint = exactly(expected);
    cases.push_back(test);
  }
  {
    // Each CTA writes a row, sends it to the other one of its cluster, and says when it has read the other's.
    PrimitiveCase test{"cp_async_bulk_copy_cluster",
                       sm90_kernel(R"(
const u32 own = shared_base(), peer = own + 512, full = own + 1024, empty = full + 8, other = cluster_cta_rank() ^ 1;
if (thread == 0) {
  mbarrier_init(full, 1);
  mbarrier_init(empty, 1);
  fence_mbarrier_init();
}
barrier_cluster_sync();
for (u32 round = 0; round < 3; ++round) {
  if (round > 0) mbarrier_wait_parity(empty, (round - 1) & 1);
  st_shared_b32(own + 4 * thread, 1000 * block_index() + 100 * round + thread);
  fence_proxy_async();
  bar_warp_sync();
  if (thread == 0) {
    mbarrier_arrive_expect_tx(full, 128);
    cp_async_bulk_copy_cluster(peer, own, 128, full, other);
  }
  mbarrier_wait_parity(full, round & 1);
  out_u32(args, 32 * (3 * block_index() + round) + thread, ld_shared_b32(peer + 4 * thread));
  bar_warp_sync();
  if (thread == 0) mbarrier_arrive_cluster(empty, other);
}
barrier_cluster_sync();
)",
                                   32, 1024 + 16, 4),
                       {},
                       4 * 3 * 32 * 4,
                       {}};
    test.kernel.cluster = 2;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t block = 0; block < 4; ++block) {
      for (std::uint32_t round = 0; round < 3; ++round) {
        for (std::uint32_t thread = 0; thread < 32; ++thread)
          expected.push_back(1000 * (block ^ 1) + 100 * round + thread);
      }
    }
    test.complaint = exactly(expected);
    cases.push_back(test);
  }
  {
    // Each CTA loads one half of a tile for both.
    const Tensor tensor{64, 1, 48, 1, 64};
    const Words words = random_words(tensor.elements(), 14);
    Words expected;
    for (std::size_t block = 0; block < 6; ++block) {
      Words tile(64 * 16);
      for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 64; ++column)
          tile[swizzled_place(row, column, 128, 128) / 2] = words[tensor.at(column, 0, block / 2 * 16 + row, 0)];
      }
      expected.insert(expected.end(), tile.begin(), tile.end());
    }
    PrimitiveCase test{"cp_async_bulk_tensor_4d_load_multicast",
                       sm90_kernel(R"(
const u32 full = shared_base() + 2048, rank = cluster_cta_rank();
if (thread == 0) {
  mbarrier_init(full, 1);
  fence_mbarrier_init();
}
barrier_cluster_sync();
if (thread == 0) {
  mbarrier_arrive_expect_tx(full, 2048);
  cp_async_bulk_tensor_4d_load_multicast(shared_base() + 1024 * rank, args.in_map, full, 3, 0, 0, 16 * (block_index() / 2) + 8 * rank, 0);
}
mbarrier_wait_parity(full, 0);
for (u32 i = thread; i < 128; i += 32) st_global_v4_b32(out_bytes(args, 2048 * block_index() + 16 * i), ld_shared_v4_b32(shared_base() + 16 * i));
barrier_cluster_sync();
)",
                                   32, 2048 + 8, 6),
                       bytes_of(words), 2 * expected.size(), exactly(expected)};
    test.kernel.cluster = 2;
    test.kernel.in_map = tensor.map(64, 1, 8, 128);
    cases.push_back(test);
  }
}

}  // namespace attune::tests
