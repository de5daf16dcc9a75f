// What the emulator says when a kernel breaks a rule of Hopper's instructions.
#include <array>

#include "generator/error.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/primitives/emulator_modes.h"
#include "tests/primitives/test_kernel.h"

namespace attune::tests {
namespace {

constexpr EmulatorOptions kEager{AsyncMode::eager};
constexpr EmulatorOptions kLazy{AsyncMode::lazy};

// Rows of 64 elements: a box of eight rows is 1024 bytes.
TensorMapRequest eight_rows(std::uint64_t rows = 8, int swizzle_bytes = 128) {
  return {.address = 0,
          .dims = {64, 1, rows, 1},
          .strides_bytes = {128, 128, 1024},
          .box = {64, 1, 8, 1},
          .swizzle_bytes = swizzle_bytes};
}

struct Rule {
  std::string body;
  int threads = 128;
  std::size_t shared_bytes = 16384;
  int cluster = 1;
  TensorMapRequest in_map = eight_rows(), out_map = eight_rows();
};

// The message of Error(emulator) that the kernel ends with; its input and output are 1024 bytes.
std::string message_of(const Rule& rule, const EmulatorOptions& options = kEager) {
  TestKernel kernel{rule.body, rule.threads, rule.shared_bytes, static_cast<std::uint32_t>(rule.cluster)};
  kernel.sm90 = true;
  kernel.cluster = rule.cluster;
  kernel.in_map = rule.in_map;
  kernel.out_map = rule.out_map;
  try {
    run_kernel(make_emulator_device(find_device("h200"), options), kernel, std::vector<std::uint8_t>(1024, 0), 1024);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::emulator);
    return error.what();
  }
  return "no error";
}

// Checks a kernel that breaks its rule whatever the mode.
void check_in_all_modes(const Rule& rule, const std::string& sentence) {
  for (const EmulatorOptions& mode : emulator_modes()) {
    INFO(to_string(mode));
    CHECK_THAT(message_of(rule, mode), ContainsSubstring(sentence));
  }
}

const std::string kFullBarrier = R"(
const u32 full = shared_base() + 12288;
if (thread == 0) {
  mbarrier_init(full, 1);
  fence_mbarrier_init();
}
bar_sync();
)";
const std::string kLoad = "cp_async_bulk_tensor_4d_load(shared_base(), args.in_map, full, 0, 0, 0, 0);\n";
const std::string kStore = "cp_async_bulk_tensor_4d_store(args.out_map, shared_base(), 0, 0, 0, 0);\n";

// A lies at the beginning of shared memory (8192 bytes), B behind it.
const std::string kOperands = R"(
const auto descriptor = [](u32 address) { return static_cast<u64>(address >> 4) | static_cast<u64>(1024 >> 4) << 32 | 1ull << 62; };
const u64 a = descriptor(shared_base()), b = descriptor(shared_base() + 8192);
float d[4] = {1, 2, 3, 4};
)";
const std::string kProduct = kOperands + "wgmma_fence();\nwgmma_ss<false, false>(d, a, b);\nwgmma_commit_group();\n";

}  // namespace

TEST_CASE("mbarriers are initialised before they are used, and used as expected", "[emulator]") {
  check_in_all_modes({"mbarrier_arrive(shared_base() + 16);\n"},
                     "mbarrier_arrive on the mbarrier at +0x10, which nobody has initialised");
  check_in_all_modes({"mbarrier_wait_parity(shared_base(), 0);\n"}, "which nobody has initialised");
  check_in_all_modes(
      {"if (thread == 0) mbarrier_init(shared_base(), 1);\nbar_sync();\nmbarrier_wait_parity(shared_base(), 2);\n"},
      "mbarrier_wait_parity: the parity 2 is neither 0 nor 1");
  CHECK_THAT(message_of({"mbarrier_init(shared_base() + 4, 1);\n", 32}),
             ContainsSubstring("mbarrier_init at +0x4, which is not a multiple of 8"));
  CHECK_THAT(message_of({"mbarrier_init(shared_base() + 16384, 1);\n", 32}),
             ContainsSubstring("mbarrier_init at +0x4000; the CTA has 16384 bytes at 0x400"));
  CHECK_THAT(message_of({"mbarrier_init(0, 1);\n", 32}), ContainsSubstring("mbarrier_init at 0x0; the CTA has"));
  for (const char* arrivals : {"0", "1 << 20"}) {
    CHECK_THAT(message_of({"mbarrier_init(shared_base(), " + std::string(arrivals) + ");\n", 32}),
               ContainsSubstring("arrivals; it must be 1 to 1048575"));
  }
  check_in_all_modes({"mbarrier_init(shared_base(), 1);\n", 32},
                     "mbarrier_init at +0x0, where an mbarrier lies already");
  // Bytes keep the phase open, so the second arrival belongs to it.
  check_in_all_modes({kFullBarrier + "mbarrier_arrive_expect_tx(full, 16);\n", 32},
                     "mbarrier_arrive_expect_tx on the mbarrier at +0x3000, whose phase wants 1 arrivals and has them "
                     "all; 16 bytes are missing");
  check_in_all_modes({kFullBarrier + "mbarrier_arrive_expect_tx(full, 1 << 20);\n", 32},
                     "expects 1048576 bytes; a phase takes 1048575");
}

TEST_CASE("the bytes of TMA loads are those that the mbarrier expects", "[emulator]") {
  const std::string wait = "mbarrier_wait_parity(full, 0);\n";
  check_in_all_modes(
      {kFullBarrier + "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 1008);\n" + kLoad + "}\n" + wait},
      "16 bytes more have completed on the mbarrier at +0x3000 than its phase expects");
  check_in_all_modes(
      {kFullBarrier + "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 1040);\n" + kLoad + "}\n" + wait, 64},
      "deadlock in CTA 0: warps 0-1: lanes 0-31 wait for parity 0 of the mbarrier at +0x3000: 0 of 1 "
      "arrivals and ");
  CHECK_THAT(message_of({kFullBarrier + "if (thread == 0) {\n" + kLoad + "mbarrier_arrive(full);\n}\n" + wait}),
             ContainsSubstring("1024 bytes more have completed on the mbarrier at +0x3000 than its phase expects"));
}

TEST_CASE("a deadlock names mbarriers, named barriers, warpgroups and clusters", "[emulator]") {
  check_in_all_modes({R"(
const u32 barrier = shared_base() + 64;
if (thread == 0) mbarrier_init(barrier, 3);
bar_sync();
if (thread < 2) mbarrier_arrive(barrier);
else if (thread >= 32) mbarrier_wait_parity(barrier, 0);
else bar_sync_named(7, 64);
)",
                      96},
                     "warp 0: lanes 2-31 wait at named barrier 7: 30 of 64 threads have arrived, lanes 0-1 have "
                     "exited; warps 1-2: lanes 0-31 wait for parity 0 of the mbarrier at +0x40: 1 of 3 arrivals and 0 "
                     "bytes are missing");
  check_in_all_modes({"if (thread >= 32) setmaxnreg_inc<40>();\n"},
                     "warp 0: lanes 0-31 have exited; warps 1-3: lanes 0-31 wait in setmaxnreg_inc with 96 threads of "
                     "the warpgroup");
  check_in_all_modes({"if (cluster_cta_rank() == 1) bar_sync_named(1, 64);\nbarrier_cluster_sync();\n", 32, 64, 2},
                     "64 threads; it must be a multiple of 32 up to the CTA's 32");
  check_in_all_modes(
      {"if (cluster_cta_rank() == 1 && thread < 32) bar_sync_named(1, 64);\nbarrier_cluster_sync();\n", 64, 64, 2},
      "deadlock in CTA 0: warps 0-1: lanes 0-31 wait in barrier_cluster_sync; CTA 1: warp 0: lanes 0-31 "
      "wait at named barrier 1: 32 of 64 threads have arrived; warp 1: lanes 0-31 wait in "
      "barrier_cluster_sync");
  // Threads that spin are found too.
  check_in_all_modes({kFullBarrier + "while (!mbarrier_try_wait_parity(full, 0)) {\n}\n", 64},
                     "deadlock in CTA 0: warps 0-1: lanes 0-31 wait for parity 0 of the mbarrier at +0x3000: 1 of 1 "
                     "arrivals and 0 bytes are missing");
  check_in_all_modes(
      {kFullBarrier + "while (thread == 0 && !mbarrier_test_wait_parity(full, 0)) {\n}\n", 32},
      "mbarrier_test_wait_parity of the mbarrier at +0x3000, parity 0: the thread has polled 1048576 times");
  // Those that have exited count as arrived at a cluster's barrier.
  for (const EmulatorOptions& mode : emulator_modes())
    CHECK(message_of({"if (cluster_cta_rank() == 0 || thread == 5) barrier_cluster_sync();\n", 64, 64, 2}, mode) ==
          "no error");
}

TEST_CASE("named barriers are 1 to 15 and wanted by all with the same number of threads", "[emulator]") {
  CHECK_THAT(message_of({"bar_sync_named(0, 32);\n", 32}),
             ContainsSubstring("bar_sync_named of barrier 0; there are 1 to 15"));
  CHECK_THAT(message_of({"bar_arrive_named(16, 32);\n", 32}), ContainsSubstring("bar_arrive_named of barrier 16"));
  CHECK_THAT(message_of({"bar_sync_named(1, 48);\n", 64}),
             ContainsSubstring("of barrier 1 with 48 threads; it must be a multiple of 32 up to the CTA's 64"));
  check_in_all_modes({"bar_sync_named(2, thread < 32 ? 64 : 96);\n", 96}, "threads, where others have come with ");
  check_in_all_modes({"if (thread < 32) {\nbar_arrive_named(2, 64);\nbar_arrive_named(2, 64);\n}\n", 64},
                     "bar_arrive_named of barrier 2 for the second time, while ");
}

TEST_CASE("mbarriers are fenced before TMA and other CTAs use them", "[emulator]") {
  check_in_all_modes(
      {"const u32 full = shared_base() + 4096;\nif (thread == 0) {\nmbarrier_init(full, 1);\n" + kLoad + "}\n"},
      "thread 0, which initialised it, has not called fence_mbarrier_init since");
  check_in_all_modes({"if (thread == 0) mbarrier_init(shared_base(), 32);\nbarrier_cluster_sync();\n"
                      "mbarrier_arrive_cluster(shared_base(), cluster_cta_rank() ^ 1);\nbarrier_cluster_sync();\n",
                      32, 64, 2},
                     "mbarrier_arrive_cluster on the mbarrier at +0x0 of CTA ");
}

TEST_CASE("an mbarrier is no place for data", "[emulator]") {
  check_in_all_modes({kFullBarrier + "st_shared_b32(full + 4, 1);\n"},
                     "st_shared_b32 writes 4 bytes of shared memory at +0x3004, where an mbarrier lies");
  check_in_all_modes({kFullBarrier + "ld_shared_v4_b32(full);\n"},
                     "ld_shared_v4_b32 reads 16 bytes of shared memory at +0x3000, where an mbarrier lies");
  for (const EmulatorOptions& mode : emulator_modes())
    CHECK(message_of({kFullBarrier + "st_shared_b32(full + 8, 1);\nst_shared_b32(full - 4, 1);\n"}, mode) ==
          "no error");
  check_in_all_modes({kFullBarrier + "cp_async_bulk_tensor_4d_load(full & ~1023u, args.in_map, full, 0, 0, 0, 0);\n"},
                     "cp_async_bulk_tensor_4d_load writes shared memory at +0x3000, where an mbarrier lies");
  check_in_all_modes({kFullBarrier + "cp_async_bulk_tensor_4d_store(args.out_map, full & ~1023u, 0, 0, 0, 0);\n"},
                     "cp_async_bulk_tensor_4d_store reads shared memory at +0x3000, where an mbarrier lies");
}

TEST_CASE("what TMA copies is checked", "[emulator]") {
  const std::string load_from =
      "const u32 full = shared_base() + 12288;\nmbarrier_init(full, 1);\nfence_mbarrier_init();\n"
      "cp_async_bulk_tensor_4d_load(";
  CHECK_THAT(
      message_of({load_from + "shared_base() + 512, args.in_map, full, 0, 0, 0, 0);\n", 32}),
      ContainsSubstring("cp_async_bulk_tensor_4d_load writes shared memory at +0x200; with a swizzle of 128 bytes "
                        "it must be a multiple of 1024"));
  Rule plain{load_from + "shared_base() + 64, args.in_map, full, 0, 0, 0, 0);\n", 32};
  plain.in_map = eight_rows(8, 0);
  CHECK_THAT(message_of(plain), ContainsSubstring("at +0x40; with a swizzle of 0 bytes it must be a multiple of 128"));
  CHECK_THAT(message_of({load_from + "shared_base() + 16384, args.in_map, full, 0, 0, 0, 0);\n", 32}),
             ContainsSubstring("writes 1024 bytes of shared memory at +0x4000; the CTA has 16384"));
  CHECK_THAT(message_of({"cp_async_bulk_tensor_4d_store(args.out_map, shared_base(), 0, 0, -3, 0);\n", 32}),
             ContainsSubstring("cp_async_bulk_tensor_4d_store at row -3: a store may not begin before its tensor"));
  CHECK_THAT(message_of({"cp_async_bulk_tensor_4d_store(args.out_map, shared_base() + 128, 0, 0, 0, 0);\n", 32}),
             ContainsSubstring("cp_async_bulk_tensor_4d_store reads shared memory at +0x80"));
  // On a GPU the three elements behind the row would be overwritten.
  Rule ragged{kStore, 32};
  ragged.out_map.dims[0] = 61;
  CHECK_THAT(
      message_of(ragged),
      ContainsSubstring("cp_async_bulk_tensor_4d_store to a tensor whose rows have 122 bytes: TMA stores 16 at a "
                        "time, and overwrites what lies behind"));
  const std::string add_to = "cp_reduce_async_bulk_add_f32(reinterpret_cast<float*>(out_bytes(args, ";
  CHECK_THAT(message_of({add_to + "4)), shared_base(), 64);\n", 32}),
             ContainsSubstring("cp_reduce_async_bulk_add_f32 of 64 bytes from +0x0 to 0x") &&
                 ContainsSubstring("all of them must be multiples of 16"));
  CHECK_THAT(message_of({add_to + "0)), shared_base() + 16352, 64);\n", 32}),
             ContainsSubstring("cp_reduce_async_bulk_add_f32 reads 64 bytes of shared memory at +0x3fe0"));
  // The tensor map says that there are 9 rows; the input holds 8.
  Rule beyond{load_from + "shared_base(), args.in_map, full, 0, 0, 1, 0);\n", 32};
  beyond.in_map = eight_rows(9);
  CHECK_THAT(
      message_of(beyond),
      ContainsSubstring("cp_async_bulk_tensor_4d_load reads 128 bytes of global memory at 0x") &&
          ContainsSubstring("as its tensor map says: 0 bytes past the end of the nearest allocation, 1024 bytes"));
  CHECK_THAT(
      message_of({kFullBarrier +
                  "if (thread == 0) cp_async_bulk_tensor_5d_load(shared_base(), args.in_map, full, 0, 0, 0, 0, 0);\n"}),
      ContainsSubstring("cp_async_bulk_tensor_5d_load with the map of a tensor of 4 dimensions"));
  // A map that begins before its tensor: a box that is within it somewhere is copied, another one is an error.
  Rule moved{
      kFullBarrier +
      "if (thread == 0) {\n  mbarrier_arrive_expect_tx(full, 1024);\n  cp_async_bulk_tensor_4d_load(shared_base(), "
      "args.in_map, full, 0, 0, 8, 0);\n}\n"};
  moved.in_map.address = 0 - (std::uint64_t{1} << 20);
  CHECK_THAT(message_of(moved),
             ContainsSubstring("cp_async_bulk_tensor_4d_load of a box that lies beside its tensor as a "
                               "whole, by a map that begins at 0x"));
  CHECK_THAT(message_of({"prefetch_tensormap(*static_cast<const TensorMap*>(args.in));\n", 32}),
             ContainsSubstring("prefetch_tensormap with something that is no tensor map of the emulator"));
  CHECK_THAT(message_of({kFullBarrier +
                         "cp_async_bulk_tensor_4d_load_multicast(shared_base(), args.in_map, full, 0, 0, 0, 0, 0);\n"}),
             ContainsSubstring("cp_async_bulk_tensor_4d_load_multicast to no CTA"));
  CHECK_THAT(message_of({kFullBarrier + "st_async_cluster_b32(full + 10, 1, full, 0);\n"}),
             ContainsSubstring("st_async_cluster_b32 to +0x300a, which is not a multiple of 4"));
  CHECK_THAT(message_of({kFullBarrier + "st_async_cluster_b32(full + 4096, 1, full, 0);\n"}),
             ContainsSubstring("st_async_cluster_b32 writes 4 bytes of shared memory at +0x4000; the CTA has "));
  CHECK_THAT(message_of({kFullBarrier + "st_async_cluster_b32(full + 8, 1, full, 1);\n"}),
             ContainsSubstring("st_async_cluster_b32 to CTA 1 of the cluster, which has 1"));
  CHECK_THAT(message_of({kFullBarrier +
                         "cp_async_bulk_tensor_4d_load_multicast(shared_base(), args.in_map, full, 2, 0, 0, 0, 0);\n"}),
             ContainsSubstring("to CTA 1 of the cluster, which has 1"));
}

TEST_CASE("what bulk copies copy is checked", "[emulator]") {
  const auto of_load = [](const std::string& operands) {
    return message_of({kFullBarrier + "if (thread == 0) cp_async_bulk_load(" + operands + ", full);\n"});
  };
  CHECK_THAT(of_load("shared_base() + 8, in_bytes(args, 0), 32"),
             ContainsSubstring("cp_async_bulk_load of 32 bytes from 0x") &&
                 ContainsSubstring("to +0x8; all of them must be multiples of 16"));
  CHECK_THAT(of_load("shared_base(), in_bytes(args, 4), 32"), ContainsSubstring("must be multiples of 16"));
  CHECK_THAT(of_load("shared_base(), in_bytes(args, 0), 40"), ContainsSubstring("must be multiples of 16"));
  CHECK_THAT(of_load("shared_base(), in_bytes(args, 1008), 32"),
             ContainsSubstring("cp_async_bulk_load reads 32 bytes"));
  CHECK_THAT(of_load("shared_base() + 16384, in_bytes(args, 0), 32"),
             ContainsSubstring("cp_async_bulk_load writes 32 bytes of shared memory at +0x4000"));
  const auto of_copy = [](const std::string& before, const std::string& operands, const std::string& after = "") {
    return Rule{kFullBarrier + "barrier_cluster_sync();\n" + before +
                    "if (thread == 0 && cluster_cta_rank() == 0) {\ncp_async_bulk_copy_cluster(" + operands +
                    ", full, 1);\n" + after +
                    "}\nif (thread == 0 && cluster_cta_rank() == 1) {\nmbarrier_arrive_expect_tx(full, 32);\n"
                    "mbarrier_wait_parity(full, 0);\n}\nbarrier_cluster_sync();\n",
                128, 16384, 2};
  };
  CHECK_THAT(message_of(of_copy("", "shared_base(), shared_base() + 8, 32")),
             ContainsSubstring("must be multiples of 16"));
  CHECK_THAT(message_of(of_copy("", "shared_base(), shared_base() + 16384, 32")),
             ContainsSubstring("cp_async_bulk_copy_cluster reads 32 bytes of shared memory at +0x4000"));
  check_in_all_modes(
      of_copy("if (thread == 5) st_shared_b32(shared_base() + 68, 1);\nbar_sync();\n",
              "shared_base(), shared_base() + 64, 32"),
      "cp_async_bulk_copy_cluster reads shared memory at +0x40, which thread 5 wrote with no fence_proxy_async");
  // Until the copy has come, its source may not change.
  CHECK_THAT(message_of(of_copy("", "shared_base(), shared_base() + 64, 32", "st_shared_b32(shared_base() + 80, 1);\n"),
                        kLazy),
             ContainsSubstring("st_shared_b32 overwrites shared memory at +0x50 while a cp_async_bulk_copy_cluster of "
                               "thread 0 still reads it"));
  for (const EmulatorOptions& mode : emulator_modes())
    CHECK(message_of(of_copy("", "shared_base(), shared_base() + 64, 32"), mode) == "no error");
}

TEST_CASE("a load that nobody waits for is reported when its CTA exits", "[emulator]") {
  CHECK_THAT(message_of({kFullBarrier + "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 1024);\n" + kLoad + "}\n"},
                        kLazy),
             ContainsSubstring("its CTA exits while the cp_async_bulk_tensor_4d_load of thread 0 to +0x0 is under way: "
                               "nobody has waited for it on the mbarrier at +0x3000"));
}

TEST_CASE("loads do not overtake one another", "[emulator]") {
  CHECK_THAT(message_of({kFullBarrier + "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 2048);\n" + kLoad + kLoad +
                         "}\nmbarrier_wait_parity(full, 0);\n"},
                        kLazy),
             ContainsSubstring("cp_async_bulk_tensor_4d_load to +0x0, where a cp_async_bulk_tensor_4d_load of thread 0 "
                               "to +0x0 is still under way"));
}

TEST_CASE("every CTA of a grid of clusters runs once, whatever the number of host threads", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    for (const int threads : {1, 3, 64}) {
      for (const int cluster : {1, 2, 8}) {
        for (const std::uint32_t clusters : {1u, 5u, 40u}) {
          EmulatorOptions options = mode;
          options.threads = threads;
          const std::uint32_t grid = clusters * static_cast<std::uint32_t>(cluster);
          TestKernel kernel{
              "barrier_cluster_sync();\nif (thread == 0) out_u32(args, block_index(), 8 * block_index() + "
              "cluster_cta_rank());\nbarrier_cluster_sync();\n",
              64, 0, grid};
          kernel.sm90 = true;
          kernel.cluster = cluster;
          const auto written = values_of<std::uint32_t>(
              run_kernel(make_emulator_device(find_device("h200"), options), kernel, {}, 4 * grid));
          std::size_t right = 0;
          for (std::uint32_t i = 0; i < grid; ++i)
            right += written[i] == 8 * i + i % static_cast<std::uint32_t>(cluster);
          CHECK(right == grid);
        }
      }
    }
  }
}

TEST_CASE("data that TMA has not landed is NaN in lazy mode", "[emulator]") {
  for (const bool waits : {false, true}) {
    TestKernel kernel{kFullBarrier + "st_shared_b32(shared_base() + 4 * thread, 7);\nbar_sync();\n" +
                          "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 1024);\n" + kLoad + "}\nbar_sync();\n" +
                          (waits ? "mbarrier_wait_parity(full, 0);\n" : "") +
                          "out_u32(args, thread, ld_shared_b32(shared_base() + 4 * thread));\nbar_sync();\n"
                          "mbarrier_wait_parity(full, 0);\n",
                      32, 16384};
    kernel.sm90 = true;
    kernel.in_map = eight_rows();
    for (const EmulatorOptions& mode : {kEager, kLazy}) {
      INFO(to_string(mode) << (waits ? ", waits" : ""));
      const auto words = values_of<std::uint32_t>(run_kernel(make_emulator_device(find_device("h200"), mode), kernel,
                                                             std::vector<std::uint8_t>(1024, 0x11), 128));
      CHECK(words ==
            std::vector<std::uint32_t>(32, waits || mode.async == AsyncMode::eager ? 0x11111111u : 0xffffffffu));
    }
  }
}

TEST_CASE("shared memory is not overwritten while TMA or wgmma reads it", "[emulator]") {
  const std::string wait = "wgmma_wait_group<0>();\n";
  check_in_all_modes(
      {kProduct + "if (thread == 77) st_shared_b32(shared_base() + 8192 + 16, 1);\n" + wait},
      "thread 77 (warp 2, lane 13): st_shared_b32 overwrites shared memory at +0x2010 while a wgmma_ss of "
      "warpgroup 0 still reads it");
  check_in_all_modes(
      {kFullBarrier + kProduct + "if (thread == 0) " + kLoad + wait},
      "cp_async_bulk_tensor_4d_load overwrites shared memory at +0x0 while a wgmma_ss of warpgroup 0 still");
  check_in_all_modes({kProduct + "wgmma_wait_group<1>();\nst_shared_b32(shared_base(), 1);\n" + wait},
                     "st_shared_b32 overwrites shared memory at +0x0 while a wgmma_ss");
  for (const EmulatorOptions& mode : emulator_modes()) {
    CHECK(message_of({kProduct + wait + "bar_sync();\nst_shared_b32(shared_base(), 1);\n"}, mode) == "no error");
    // A k16 step reads 32 of the 128 bytes of a row; the others are free.
    CHECK(message_of({kProduct + "st_shared_b32(shared_base() + 32, 1);\n" + wait}, mode) == "no error");
  }
  const std::string store = "if (thread == 0) {\n" + kStore + "cp_async_bulk_commit_group();\n";
  check_in_all_modes(
      {store + "st_shared_b32(shared_base() + 1020, 1);\n}\n"},
      "st_shared_b32 overwrites shared memory at +0x3f0 while a cp_async_bulk_tensor_4d_store of thread 0 "
      "still reads it");
  check_in_all_modes({store + "cp_async_bulk_wait_group_read<1>();\nst_shared_b32(shared_base(), 1);\n}\n"},
                     "st_shared_b32 overwrites shared memory at +0x0");
  const std::string add =
      "cp_reduce_async_bulk_add_f32(reinterpret_cast<float*>(out_bytes(args, 0)), shared_base(), 64);\n"
      "cp_async_bulk_commit_group();\n";
  check_in_all_modes(
      {"if (thread == 0) {\n" + add + "st_shared_b32(shared_base() + 60, 1);\n}\n"},
      "st_shared_b32 overwrites shared memory at +0x30 while a cp_reduce_async_bulk_add_f32 of thread 0");
  for (const EmulatorOptions& mode : emulator_modes()) {
    CHECK(message_of({store + "cp_async_bulk_wait_group_read<0>();\nst_shared_b32(shared_base(), 1);\n}\n"}, mode) ==
          "no error");
  }
  // The CTA may end with the thread that issued them.
  const std::string exits = "it exits while its ", covers = ": no cp_async_bulk_wait_group_read covers it";
  check_in_all_modes({store + "}\n"},
                     exits + "cp_async_bulk_tensor_4d_store still reads shared memory at +0x0" + covers);
  check_in_all_modes({"if (thread == 0) {\n" + add + "cp_async_bulk_wait_group_read<1>();\n}\n"},
                     exits + "cp_reduce_async_bulk_add_f32 still reads shared memory at +0x0" + covers);
  // By the other CTA of the cluster.
  check_in_all_modes(
      {kFullBarrier + "barrier_cluster_sync();\n" + kProduct +
           "barrier_cluster_sync();\nif (thread == 0 && cluster_cta_rank() == 0)\n"
           "cp_async_bulk_tensor_4d_load_multicast(shared_base(), args.in_map, full, 2, 0, 0, 0, 0);\n"
           "barrier_cluster_sync();\n" +
           wait,
       128, 16384, 2},
      "cp_async_bulk_tensor_4d_load_multicast overwrites shared memory at +0x0 of CTA 1 while a wgmma_ss");
}

TEST_CASE("warps of a warpgroup end their products apart", "[emulator]") {
  // The stage is given back by one warp for all of them, or by each for itself.
  bool seen = false;
  for (const bool by_one : {true, false}) {
    const std::string count = by_one ? "1" : "4", who = by_one ? "thread == 0" : "thread % 32 == 0";
    const Rule rule{"const u32 empty = shared_base() + 12288;\nif (thread == 0) mbarrier_init(empty, " + count +
                        ");\nbar_sync();\nif (thread < 128) {\n" + kProduct + "wgmma_wait_group<0>();\nif (" + who +
                        ") mbarrier_arrive(empty);\n} else if (thread == 128) {\nmbarrier_wait_parity(empty, 0);\n"
                        "st_shared_b32(shared_base(), 1);\n}\n",
                    160};
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const EmulatorOptions mode{seed % 2 ? AsyncMode::lazy : AsyncMode::eager, ScheduleMode::random, seed};
      INFO(to_string(mode));
      const std::string message = message_of(rule, mode);
      if (by_one) {
        seen |= message.find("while a wgmma_ss of warpgroup 0 still reads it") != std::string::npos;
      } else {
        CHECK(message == "no error");
      }
    }
  }
  CHECK(seen);
}

TEST_CASE("ordinary writes are fenced before wgmma and TMA read them", "[emulator]") {
  const std::string write = "if (thread == 40) st_shared_b32(shared_base() + 8192 + 4, 1);\n", sync = "bar_sync();\n";
  const std::string wait = "wgmma_wait_group<0>();\n";
  check_in_all_modes({write + sync + kProduct + wait},
                     "wgmma_ss reads shared memory at +0x2000, which thread 40 wrote with no fence_proxy_async since");
  // Only the writer's own fence counts.
  check_in_all_modes({write + "if (thread != 40) fence_proxy_async();\n" + sync + kProduct + wait},
                     "which thread 40 wrote with no fence_proxy_async since");
  check_in_all_modes({"fence_proxy_async();\n" + write + sync + kProduct + wait}, "which thread 40 wrote");
  check_in_all_modes({"cp_async_cg_16(shared_base() + 16 * thread, in_bytes(args, 0), 16);\ncp_async_commit_group();\n"
                      "cp_async_wait_group<0>();\n" +
                      sync + "if (thread == 0) " + kStore},
                     "cp_async_bulk_tensor_4d_store reads shared memory at +0x0, which thread 0 wrote");
  for (const EmulatorOptions& mode : emulator_modes()) {
    CHECK(message_of({write + "fence_proxy_async();\n" + sync + kProduct + wait}, mode) == "no error");
    // TMA's own writes need none, and a load replaces what was written before.
    CHECK(message_of({kFullBarrier +
                      "if (thread == 0) {\nst_shared_b32(shared_base(), 1);\nmbarrier_arrive_expect_tx(full, 1024);\n" +
                      kLoad + "}\nmbarrier_wait_parity(full, 0);\nif (thread == 0) {\n" + kStore +
                      "cp_async_bulk_commit_group();\ncp_async_bulk_wait_group_read<0>();\n}\n"},
                     mode) == "no error");
  }
}

TEST_CASE("what was read is used before TMA overwrites it", "[emulator]") {
  // A barrier says that all have issued their loads from shared memory, not that these have come.
  const std::string load = "if (thread == 0) {\nmbarrier_arrive_expect_tx(full, 1024);\n" + kLoad + "}\n";
  const std::string read = "mbarrier_wait_parity(full, 0);\nconst u32 x = ld_shared_b32(shared_base() + 4 * thread);\n";
  const std::string again = "bar_sync();\n" + load + "mbarrier_wait_parity(full, 1);\n";
  check_in_all_modes({kFullBarrier + load + read + again + "st_shared_b32(shared_base() + 8192 + 4 * thread, x);\n"},
                     "which thread 0 has read without using what it read");
  for (const EmulatorOptions& mode : emulator_modes()) {
    CHECK(message_of({kFullBarrier + load + read + "st_shared_b32(shared_base() + 8192 + 4 * thread, x);\n" + again},
                     mode) == "no error");
    CHECK(message_of({kFullBarrier + load + read + "fence_proxy_async();\n" + again +
                      "st_shared_b32(shared_base() + 8192 + 4 * thread, x);\n"},
                     mode) == "no error");
  }
}

TEST_CASE("a CTA outlives those of its cluster that reach into it", "[emulator]") {
  // CTA 1 is gone before CTA 0, whose clock is a collective, goes on.
  const std::string late = "if (cluster_cta_rank() == 1) return;\nfor (u32 i = 0; i < 2000; ++i) bar_warp_sync();\n";
  check_in_all_modes(
      {kFullBarrier + "barrier_cluster_sync();\n" + late + "mbarrier_arrive_cluster(full, 1);\n", 32, 16384, 2},
      "mbarrier_arrive_cluster to CTA 1 of the cluster (block 1), which has exited");
  check_in_all_modes({kFullBarrier + "barrier_cluster_sync();\n" + late +
                          "cp_async_bulk_tensor_4d_load_multicast(shared_base(), args.in_map, full, 3, 0, 0, 0, 0);\n",
                      32, 16384, 2},
                     "cp_async_bulk_tensor_4d_load_multicast to CTA 1 of the cluster (block 1), which has exited");
}

TEST_CASE("a warpgroup's collectives want its 128 threads at the same call", "[emulator]") {
  CHECK_THAT(message_of({"if (thread >= 128) setmaxnreg_inc<40>();\n", 160}),
             ContainsSubstring("setmaxnreg_inc wants the 128 threads of a warpgroup; the last 32 of the CTA are none"));
  check_in_all_modes({"if (thread < 32) setmaxnreg_inc<40>();\nelse setmaxnreg_dec<40>();\n"},
                     "divergence: it calls setmaxnreg_");
  check_in_all_modes({"if (thread < 32) setmaxnreg_inc<40>();\nelse setmaxnreg_inc<48>();\n"}, "with another operand");
  check_in_all_modes({kOperands + "wgmma_fence();\nwgmma_ss<false, false>(d, a, thread < 64 ? b : b + 64);\n"},
                     "wait in wgmma_ss with another operand");
  check_in_all_modes(
      {kOperands + "wgmma_fence();\nif (thread < 5) wgmma_commit_group();\nwgmma_ss<false, false>(d, a, b);\n"},
      "wait in wgmma_ss with another operand");
  CHECK_THAT(message_of({"setmaxnreg_dec<20>();\n"}),
             ContainsSubstring("setmaxnreg_dec of 20 registers; it must be a multiple of 8 from 24 to 256"));
  CHECK_THAT(message_of({"setmaxnreg_inc<100>();\n"}), ContainsSubstring("setmaxnreg_inc of 100 registers"));
  CHECK_THAT(message_of({"setmaxnreg_inc<264>();\n"}), ContainsSubstring("setmaxnreg_inc of 264 registers"));
}

TEST_CASE("descriptors of wgmma are checked", "[emulator]") {
  const auto with = [](const std::string& a, const std::string& b, const char* transposed = "false") {
    return Rule{kOperands + "wgmma_fence();\nwgmma_ss<false, " + transposed + ">(d, " + a + ", " + b +
                ");\nwgmma_commit_group();\nwgmma_wait_group<0>();\n"};
  };
  CHECK(message_of(with("a", "b")) == "no error");
  CHECK_THAT(message_of(with("a & ~(3ull << 62)", "b")),
             ContainsSubstring("wgmma_ss: the descriptor 0x") && ContainsSubstring("of a has no swizzle"));
  CHECK_THAT(message_of(with("a", "b | 3ull << 49")), ContainsSubstring("of b has the base offset 3"));
  CHECK_THAT(
      message_of(with("a + 8", "b")),
      ContainsSubstring("of a begins at 0x480; with a swizzle of 128 bytes its rows must begin at a multiple of 1024"));
  CHECK_THAT(message_of(with("a", "b + 7")),
             ContainsSubstring("of b begins 112 bytes into a span of 128; 16 elements of K do not fit"));
  CHECK_THAT(message_of(with("a", "b + 2", "true")),
             ContainsSubstring("of b begins 32 bytes into a span of 128; MN-major"));
  CHECK_THAT(message_of(with("a", "descriptor(shared_base() + 16384)")),
             ContainsSubstring("wgmma_ss reads b from shared memory at 0x4400; the CTA has 16384 bytes at 0x400"));
  CHECK_THAT(
      message_of({kFullBarrier + kOperands + "wgmma_fence();\nwgmma_ss<false, false>(d, a, descriptor(full));\n"}),
      ContainsSubstring("wgmma_ss reads shared memory at +0x3000, where an mbarrier lies"));
}

TEST_CASE("wgmma is fenced, waited for, and left alone until then", "[emulator]") {
  const std::string wait = "wgmma_wait_group<0>();\n",
                    again = "wgmma_ss<true, false>(d, a, b);\nwgmma_commit_group();\n" + wait;
  check_in_all_modes({kOperands + again},
                     "wgmma_ss with no wgmma_fence since the kernel began or since the last wgmma_wait_group");
  check_in_all_modes({kProduct + wait + again}, "wgmma_ss with no wgmma_fence since");
  check_in_all_modes({kProduct + "if (thread == 0) out_f32(args, 0, 1);\n"},
                     "it exits while wgmma_ss of its warpgroup is under way: no wgmma_wait_group covers it");
  check_in_all_modes({kProduct + "wgmma_wait_group<1>();\n"}, "it exits while wgmma_ss of its warpgroup is under way");
  // A product that no commit_group closes belongs to no group that a wait could cover.
  check_in_all_modes({kOperands + "wgmma_fence();\nwgmma_ss<false, false>(d, a, b);\n" + wait},
                     "it exits while wgmma_ss");

  CHECK_THAT(
      message_of({kProduct + "if (thread == 3) d[2] = 5;\n" + wait + "out_f32(args, thread, d[2]);\n"}, kLazy),
      ContainsSubstring("the accumulator was touched between the issue of a wgmma_ss and the wait for it, in thread "
                        "3 of the warpgroup"));
  const std::string fragments = kOperands +
                                "u32 fragments[4] = {thread, 0, 0, 0};\nwgmma_fence();\n"
                                "wgmma_rs<false, false>(d, fragments, 0, b);\nwgmma_commit_group();\n";
  CHECK_THAT(
      message_of({fragments + "if (thread == 9) fragments[0] = 5;\n" + wait + "out_u32(args, thread, fragments[0]);\n"},
                 kLazy),
      ContainsSubstring("registers of a were touched between the issue of a wgmma_rs and the wait for it, in thread "
                        "9 of the warpgroup"));
  CHECK(message_of({fragments + wait}, kLazy) == "no error");
}

TEST_CASE("the accumulator is NaN from the issue of a wgmma to the wait in lazy mode", "[emulator]") {
  for (const bool waits : {false, true}) {
    // A and B are all zero, d begins as 1: d += a b leaves 1.
    TestKernel kernel{kFullBarrier + R"(
for (u32 i = thread; i < 9216 / 16; i += 128) st_shared_v4_b32(shared_base() + 16 * i, Vec4{0, 0, 0, 0});
fence_proxy_async();
bar_sync();
)" + kOperands + "d[1] = 1;\nwgmma_fence();\nwgmma_ss<true, false>(d, a, b);\nwgmma_commit_group();\n" +
                          (waits ? "wgmma_wait_group<0>();\n" : "wgmma_wait_group<1>();\n") +
                          "out_f32(args, thread, d[1]);\nwgmma_wait_group<0>();\n",
                      128, 16384};
    kernel.sm90 = true;
    for (const EmulatorOptions& mode : {kEager, kLazy}) {
      INFO(to_string(mode) << (waits ? ", waits" : ""));
      const auto words =
          values_of<std::uint32_t>(run_kernel(make_emulator_device(find_device("h200"), mode), kernel, {}, 512));
      CHECK(words ==
            std::vector<std::uint32_t>(128, waits || mode.async == AsyncMode::eager ? 0x3f800000u : 0xffffffffu));
    }
  }
}

TEST_CASE("tensor maps that the accelerator cannot serve are refused", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  const auto complaint = [&](const auto& change) -> std::string {
    TensorMapRequest request = eight_rows();
    change(request);
    std::array<std::uint8_t, kTensorMapBytes> map;
    try {
      device->encode_tensor_map(request, map.data());
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  CHECK(complaint([](auto&) {}) == "no error");
  CHECK_THAT(complaint([](auto& r) { r.address = 8; }), ContainsSubstring("the address 0x8 is not a multiple of 16"));
  CHECK_THAT(complaint([](auto& r) { r.dims[2] = 0; }), ContainsSubstring("dim 2 is 0; it must be 1 to 2^32"));
  CHECK_THAT(complaint([](auto& r) { r.dims[0] = (std::uint64_t{1} << 32) + 1; }),
             ContainsSubstring("dim 0 is 4294967297"));
  CHECK(complaint([](auto& r) { r.dims[0] = std::uint64_t{1} << 32; }) == "no error");
  CHECK_THAT(complaint([](auto& r) { r.strides_bytes[1] = 40; }),
             ContainsSubstring("the stride of dim 2 is 40 bytes, which is not a multiple of 16"));
  CHECK_THAT(complaint([](auto& r) { r.strides_bytes[2] = std::uint64_t{1} << 40; }),
             ContainsSubstring("the stride of dim 3 is 1099511627776 bytes; it must be below 2^40"));
  CHECK_THAT(complaint([](auto& r) { r.box[2] = 257; }),
             ContainsSubstring("the box is 257 along dim 2; it must be 1 to 256"));
  CHECK_THAT(complaint([](auto& r) { r.box[1] = 0; }), ContainsSubstring("the box is 0 along dim 1"));
  CHECK_THAT(complaint([](auto& r) { r.box[0] = 12; }),
             ContainsSubstring("a row of the box has 24 bytes, which is not a multiple of 16"));
  CHECK_THAT(complaint([](auto& r) { r.box[0] = 72; }),
             ContainsSubstring("a row of the box has 144 bytes; a swizzle of 128 takes no more"));
  CHECK_THAT(complaint([](auto& r) { r.swizzle_bytes = 16; }), ContainsSubstring("a swizzle of 16 bytes"));
  std::array<std::uint8_t, kTensorMapBytes> map;
  CHECK_THROWS_WITH(make_emulator_device(find_device("a100"))->encode_tensor_map(eight_rows(), map.data()),
                    ContainsSubstring("emulator of a100 has no tensor memory accelerator"));
}

TEST_CASE("clusters that cannot be are refused", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  TestKernel kernel{"out_u32(args, 0, cluster_cta_rank());\n"};
  kernel.sm90 = true;
  for (const int cluster : {0, 9}) {
    kernel.cluster = cluster;
    CHECK_THROWS_WITH(run_kernel(device, kernel, {}, 64),
                      ContainsSubstring("wants clusters of " + std::to_string(cluster) + " CTAs; they have 1 to 8"));
  }
  kernel.cluster = 2;
  kernel.grid = 3;
  CHECK_THROWS_WITH(run_kernel(device, kernel, {}, 64),
                    ContainsSubstring("has clusters of 2 CTAs; a grid of 3 does not fit"));
}

}  // namespace attune::tests
