#include "tests/primitives/sm90_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/primitives/cluster_cases.h"
#include "tests/primitives/number_formats.h"
#include "tests/primitives/sm90_case.h"
#include "tests/primitives/tensor_map_cases.h"
#include "tests/primitives/wgmma_cases.h"

namespace attune::tests {
namespace {

using Words = std::vector<std::uint16_t>;

void add_barriers(std::vector<PrimitiveCase>& cases) {
  std::vector<std::uint32_t> expected;
  for (std::uint32_t x = 0; x < 32; ++x) {
    std::uint32_t y = x;
    for (std::uint32_t round = 0; round < 6; ++round) y = 3 * (y + round) + 1;
    expected.push_back(y);
  }
  cases.push_back({"mbarrier_init mbarrier_arrive mbarrier_try_wait_parity, between two warps",
                   sm90_kernel(R"(
const u32 ping = shared_base(), pong = ping + 8, cell = ping + 16 + 4 * (thread % 32);
if (thread == 0) {
  mbarrier_init(ping, 32);
  mbarrier_init(pong, 32);
}
bar_sync();
if (thread < 32) {
  u32 x = thread;
  for (u32 round = 0; round < 6; ++round) {
    st_shared_b32(cell, x + round);
    mbarrier_arrive(ping);
    while (!mbarrier_try_wait_parity(pong, round & 1)) {
    }
    x = ld_shared_b32(cell);
  }
  out_u32(args, thread, x);
} else {
  for (u32 round = 0; round < 6; ++round) {
    mbarrier_wait_parity(ping, round & 1);
    st_shared_b32(cell, 3 * ld_shared_b32(cell) + 1);
    mbarrier_arrive(pong);
  }
}
)",
                               64, 16 + 128),
                   {},
                   128,
                   exactly(expected)});
  // Warp 0 hands to warp 1, which hands to warp 2, each on a barrier of its own; warp 2 says when a round is over.
  cases.push_back({"bar_sync_named bar_arrive_named",
                   sm90_kernel(R"(
const u32 first = shared_base() + 4 * (31 - lane_index()), second = first + 128;
u32 x = lane_index();
for (u32 round = 0; round < 6; ++round) {
  if (warp_index() == 0) {
    if (round > 0) bar_sync_named(15, 64);
    st_shared_b32(first, round > 0 ? ld_shared_b32(second) + round : x);
    bar_arrive_named(1, 64);
  } else if (warp_index() == 1) {
    bar_sync_named(1, 64);
    const u32 y = 3 * ld_shared_b32(first);
    if (round > 0) bar_sync_named(3, 64);
    st_shared_b32(second, y);
    bar_arrive_named(2, 64);
  } else {
    bar_sync_named(2, 64);
    x = ld_shared_b32(second) + 1;
    st_shared_b32(second, x);
    if (round < 5) {
      bar_arrive_named(15, 64);
      bar_arrive_named(3, 64);
    }
  }
}
if (warp_index() == 2) out_u32(args, lane_index(), x);
)",
                               96, 256),
                   {},
                   128,
                   exactly(expected)});
}

// Rows of four matrices in an order of their own.
void add_matrix_store(std::vector<PrimitiveCase>& cases) {
  std::vector<std::uint32_t> in(128), expected(128);
  for (std::uint32_t i = 0; i < 128; ++i) in[i] = 0x10000 * i + 7 * i;
  for (std::uint32_t row = 0; row < 32; ++row) {
    for (std::uint32_t word = 0; word < 4; ++word) {
      const std::uint32_t matrix = row / 8, lane = row % 8 * 4 + word;
      expected[4 * (row ^ 13) + word] = in[4 * lane + matrix];
    }
  }
  cases.push_back({"stmatrix_x4",
                   sm90_kernel(R"(
const u32 r[4] = {in_u32(args, 4 * thread), in_u32(args, 4 * thread + 1), in_u32(args, 4 * thread + 2), in_u32(args, 4 * thread + 3)};
stmatrix_x4(shared_base() + 16 * (thread ^ 13), r);
bar_warp_sync();
for (u32 i = 0; i < 4; ++i) out_u32(args, 4 * thread + i, ld_shared_b32(shared_base() + 16 * thread + 4 * i));
)",
                               32, 512),
                   bytes_of(in), 4 * expected.size(), exactly(expected)});
}

// The same of transposed matrices: what a lane gives lies in rows 2 (lane % 4) and the next, in column lane / 4.
void add_transposed_matrix_store(std::vector<PrimitiveCase>& cases) {
  std::vector<std::uint32_t> in(128);
  for (std::uint32_t i = 0; i < 128; ++i) in[i] = 0x10000 * (3 * i + 1) + 7 * i;
  Words expected(256);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      for (std::size_t half = 0; half < 2; ++half) {
        const std::size_t row = (8 * matrix + 2 * (lane % 4) + half) ^ 13;
        expected[8 * row + lane / 4] = static_cast<std::uint16_t>(in[4 * lane + matrix] >> (16 * half));
      }
    }
  }
  cases.push_back({"stmatrix_x4_trans",
                   sm90_kernel(R"(
const u32 r[4] = {in_u32(args, 4 * thread), in_u32(args, 4 * thread + 1), in_u32(args, 4 * thread + 2), in_u32(args, 4 * thread + 3)};
stmatrix_x4_trans(shared_base() + 16 * (thread ^ 13), r);
bar_warp_sync();
for (u32 i = 0; i < 4; ++i) out_u32(args, 4 * thread + i, ld_shared_b32(shared_base() + 16 * thread + 4 * i));
)",
                               32, 512),
                   bytes_of(in), 2 * expected.size(), exactly(expected)});
}

// Two copies to one barrier, one of them behind the other in shared memory and before it in the input.
void add_bulk_load(std::vector<PrimitiveCase>& cases) {
  const Words words = random_words(400, 15);
  Words expected(words.begin() + 200, words.begin() + 264);
  expected.insert(expected.end(), words.begin() + 8, words.begin() + 200);
  cases.push_back({"cp_async_bulk_load",
                   sm90_kernel(R"(
const u32 full = shared_base() + 1024;
if (thread == 0) {
  mbarrier_init(full, 1);
  fence_mbarrier_init();
}
bar_sync();
if (thread == 0) {
  mbarrier_arrive_expect_tx(full, 512);
  cp_async_bulk_load(shared_base(), in_bytes(args, 400), 128, full);
  cp_async_bulk_load(shared_base() + 128, in_bytes(args, 16), 384, full);
}
mbarrier_wait_parity(full, 0);
st_global_v4_b32(out_bytes(args, 16 * thread), ld_shared_v4_b32(shared_base() + 16 * thread));
)",
                               32, 1024 + 8),
                   bytes_of(words), 2 * expected.size(), exactly(expected)});
}

// Halves of pairs as floats.
void add_widening(std::vector<PrimitiveCase>& cases) {
  const std::vector<double> values = {0, 1, -2.5, 0x1p-14, -0x1p-3, 448, -1.0078125, 3};
  for (const bool bf16 : {true, false}) {
    Words words;
    std::vector<float> expected;
    for (const double value : values) {
      words.push_back(bf16 ? encode_bf16(value) : encode_f16(value));
      expected.push_back(static_cast<float>(value));
    }
    const std::string type = bf16 ? "bf16" : "f16";
    cases.push_back({"cvt_f32_low_" + type + " cvt_f32_high_" + type,
                     sm90_kernel("if (thread < 4) {\n  out_f32(args, 2 * thread, cvt_f32_low_" + type +
                                     "(in_u32(args, thread)));\n  out_f32(args, 2 * thread + 1, cvt_f32_high_" + type +
                                     "(in_u32(args, thread)));\n}\n",
                                 32, 0),
                     bytes_of(words), 4 * expected.size(), exactly(expected)});
  }
}

// Each value with each other; the bits of a NaN are not said.
void add_nan_extremes(std::vector<PrimitiveCase>& cases) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, -1, 127, -127.5f, infinity, -infinity, std::nanf(""), 3e38f};
  std::vector<float> in, largest, smallest;
  for (const float a : values) {
    for (const float b : values) {
      in.insert(in.end(), {a, b});
      const bool is_nan = std::isnan(a) || std::isnan(b);
      largest.push_back(is_nan ? std::nanf("") : std::max(a, b));
      smallest.push_back(is_nan ? std::nanf("") : std::min(a, b));
    }
  }
  const auto numbers = [](const std::vector<float>& expected) {
    return [expected](const Bytes& output) -> std::string {
      const std::vector<float> actual = values_of<float>(output);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (actual.at(i) != expected[i] && !(std::isnan(actual[i]) && std::isnan(expected[i])))
          return "element " + std::to_string(i) + " is " + std::to_string(actual[i]);
      }
      return {};
    };
  };
  const auto kernel = [](const std::string& call) {
    return sm90_kernel("out_u32(args, thread, f32_to_bits(" + call +
                           "(bits_to_f32(in_u32(args, 2 * thread)), bits_to_f32(in_u32(args, 2 * thread + 1)))));\n",
                       64, 128);
  };
  cases.push_back({"max_nan_f32", kernel("max_nan_f32"), bytes_of(in), 4 * largest.size(), numbers(largest)});
  cases.push_back({"min_nan_f32", kernel("min_nan_f32"), bytes_of(in), 4 * smallest.size(), numbers(smallest)});
}

// Three warps add to the same floats, small integers that add up to the same in any order; one of them twice.
void add_bulk_add(std::vector<PrimitiveCase>& cases) {
  constexpr std::size_t kFloats = 128;
  std::vector<float> expected;
  for (std::size_t i = 0; i < kFloats; ++i) expected.push_back(100.0f + static_cast<float>(4 * i));
  cases.push_back({"cp_reduce_async_bulk_add_f32",
                   sm90_kernel(R"(
const u32 warp = warp_index(), part = shared_base() + 512 * warp;
if (warp == 0) st_global_v4_b32(out_bytes(args, 16 * thread), Vec4{f32_to_bits(100.0f), f32_to_bits(100.0f), f32_to_bits(100.0f), f32_to_bits(100.0f)});
u32 word[4];
for (u32 i = 0; i < 4; ++i) word[i] = f32_to_bits(static_cast<float>(4 * (thread % 32) + i));
st_shared_v4_b32(part + 16 * (thread % 32), Vec4{word[0], word[1], word[2], word[3]});
fence_proxy_async();
fence_acq_rel_gpu();
bar_sync();
if (thread % 32 == 0) {
  float* const sums = reinterpret_cast<float*>(out_bytes(args, 0));
  if (warp == 2) {
    cp_reduce_async_bulk_add_f32(sums, part, 256);
    cp_reduce_async_bulk_add_f32(sums + 64, part + 256, 256);
    cp_async_bulk_commit_group();
  }
  cp_reduce_async_bulk_add_f32(sums, part, 512);
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group_read<0>();
}
)",
                               96, 3 * 512),
                   {},
                   4 * expected.size(),
                   exactly(expected)});
}

void add_registers_and_atomics(std::vector<PrimitiveCase>& cases) {
  std::vector<std::uint32_t> threads;
  for (std::uint32_t i = 0; i < 384; ++i) threads.push_back(i);
  cases.push_back({"setmaxnreg_dec setmaxnreg_inc",
                   sm90_kernel(R"(
if (thread < 128) setmaxnreg_dec<40>();
else setmaxnreg_inc<232>();
out_u32(args, thread, thread);
)",
                               384, 0),
                   {},
                   384 * 4,
                   exactly(threads)});
  // Everyone draws a number; the counter begins at -1, as the output does.
  std::vector<std::uint32_t> drawn = {8 * 64 - 1};
  for (std::uint32_t i = 0; i < 8 * 64; ++i) drawn.push_back(i);
  cases.push_back({"atom_relaxed_gpu_global_add_u32 of many CTAs",
                   sm90_kernel(R"(
const u32 number = atom_relaxed_gpu_global_add_u32(reinterpret_cast<u32*>(out_bytes(args, 0)), 1) + 1;
st_global_b32(out_bytes(args, 4 + 4 * number), number);
)",
                               64, 0, 8),
                   {},
                   drawn.size() * 4,
                   exactly(drawn)});
  std::vector<std::uint32_t> tripled;
  for (std::uint32_t i = 0; i < 64; ++i) tripled.push_back(3 * i);
  std::vector<float> terms;  // small integers: their sums are exact, whatever the order
  std::vector<float> sums(8, 0.5f);
  for (int i = 0; i < 256; ++i) terms.push_back(static_cast<float>(i % 41) - 17.0f);
  for (std::size_t i = 0; i < 256; ++i) sums[i % 8] += terms[i];
  cases.push_back({"red_global_add_v4_f32",
                   sm90_kernel(R"(
if (thread < 8) st_global_f32(out_bytes(args, 4 * thread), 0.5f);
bar_sync();
red_global_add_v4_f32(reinterpret_cast<float*>(out_bytes(args, 16 * (thread % 2))),
                      ld_global_v4_f32(static_cast<const float*>(args.in) + 4 * thread));
)",
                               64, 0),
                   bytes_of(terms), 32, exactly(sums)});
  // The last of four CTAs to say that it has written copies what all have written.
  std::vector<std::uint32_t> copied = {3, 0xffffffffu, 0xffffffffu, 0xffffffffu};
  for (int times = 0; times < 2; ++times) {
    for (std::uint32_t i = 0; i < 64; ++i) copied.push_back(5 * i + 1);
  }
  cases.push_back({"fence_acq_rel_gpu atom_acq_rel_gpu_global_add_u32 ld_weak_global_v4_f32",
                   sm90_kernel(R"(
const u32 i = 16 * block_index() + thread % 16;
if (thread < 16) st_global_b32(out_bytes(args, 16 + 4 * i), 5 * i + 1);
fence_acq_rel_gpu();
bar_sync();
if (thread == 0) st_shared_b32(shared_base(), atom_acq_rel_gpu_global_add_u32(reinterpret_cast<u32*>(out_bytes(args, 0)), 1));
bar_sync();
if (ld_shared_b32(shared_base()) == 2 && thread < 16) {
  const Vec4F32 read = ld_weak_global_v4_f32(reinterpret_cast<const float*>(out_bytes(args, 16 + 16 * thread)));
  st_global_v4_b32(out_bytes(args, 272 + 16 * thread), Vec4{f32_to_bits(read.x), f32_to_bits(read.y), f32_to_bits(read.z), f32_to_bits(read.w)});
}
)",
                               64, 16, 4),
                   {},
                   copied.size() * 4,
                   exactly(copied)});
  // The greater of two signed numbers, in each half.
  const std::vector<std::uint32_t> pairs = {0x0000'8000, 0x7fff'0001, 0xffff'0000, 0x8000'7fff, 0x1234'9abc};
  std::vector<std::uint32_t> greater;
  for (const std::uint32_t pair : pairs) {
    const auto of = [](std::uint32_t x, std::uint32_t y) {
      return static_cast<std::uint32_t>(
          static_cast<std::uint16_t>(std::max(static_cast<std::int16_t>(x), static_cast<std::int16_t>(y))));
    };
    greater.push_back(of(pair, 0xfffe) | of(pair >> 16, 0) << 16);
  }
  TestKernel kernel =
      sm90_kernel("if (thread < 5) out_u32(args, thread, max_s16x2(in_u32(args, thread), 0xfffeu));\n", 32, 0);
  cases.push_back({"max_s16x2", std::move(kernel), bytes_of(pairs), pairs.size() * 4, exactly(greater)});
  // A launch follows no other here, and none follows it: neither waits for anything.
  cases.push_back({"griddepcontrol_launch_dependents griddepcontrol_wait",
                   sm90_kernel(R"(
griddepcontrol_launch_dependents();
griddepcontrol_wait();
st_global_b32(out_bytes(args, 4 * thread), 3 * thread);
)",
                               64, 0),
                   {},
                   64 * 4,
                   exactly(tripled)});
}

}  // namespace

const std::vector<PrimitiveCase>& sm90_cases() {
  static const std::vector<PrimitiveCase> cases = [] {
    std::vector<PrimitiveCase> made;
    add_barriers(made);
    add_tensor_map_cases(made);
    add_matrix_store(made);
    add_transposed_matrix_store(made);
    add_bulk_load(made);
    add_widening(made);
    add_nan_extremes(made);
    add_bulk_add(made);
    add_cluster_cases(made);
    add_registers_and_atomics(made);
    add_wgmma_cases(made);
    return made;
  }();
  return cases;
}

}  // namespace attune::tests
