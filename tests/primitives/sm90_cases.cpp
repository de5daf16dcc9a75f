#include "tests/primitives/sm90_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "tests/primitives/number_formats.h"
#include "tests/primitives/sm90_case.h"
#include "tests/primitives/wgmma_cases.h"

namespace attune::tests {
namespace {

using Words = std::vector<std::uint16_t>;

// A tensor (dim, head, row, batch) of the shape below; its rows are padded, so that the strides matter.
struct Tensor {
  std::size_t dim, heads, rows, batches, row_stride;
  std::size_t elements() const { return batches * rows * heads * row_stride; }
  // In elements.
  std::size_t at(std::size_t d, std::size_t h, std::size_t r, std::size_t b) const {
    return ((b * rows + r) * heads + h) * row_stride + d;
  }
  TensorMapRequest map(std::uint32_t box_columns, std::uint32_t box_heads, std::uint32_t box_rows, int swizzle) const {
    return {.address = 0,
            .dims = {dim, heads, rows, batches},
            .strides_bytes = {2 * row_stride, 2 * row_stride * heads, 2 * row_stride * heads * rows},
            .box = {box_columns, box_heads, box_rows, 1},
            .swizzle_bytes = swizzle};
  }
};

struct BoxAt {
  int dim, head, row, batch;
};

// Element (column, head, row) of a box that begins at `at`, or nothing if it lies outside of the tensor.
std::optional<std::size_t> element_of(const Tensor& tensor, const BoxAt& at, std::size_t column, std::size_t head,
                                      std::size_t row) {
  const auto d = at.dim + static_cast<long>(column), h = at.head + static_cast<long>(head),
             r = at.row + static_cast<long>(row), b = static_cast<long>(at.batch);
  const auto inside = [](long x, std::size_t size) { return x >= 0 && x < static_cast<long>(size); };
  if (!inside(d, tensor.dim) || !inside(h, tensor.heads) || !inside(r, tensor.rows) || !inside(b, tensor.batches))
    return std::nullopt;
  return tensor.at(static_cast<std::size_t>(d), static_cast<std::size_t>(h), static_cast<std::size_t>(r),
                   static_cast<std::size_t>(b));
}

std::string coordinates(const BoxAt& at) {
  return std::to_string(at.dim) + ", " + std::to_string(at.head) + ", " + std::to_string(at.row) + ", " +
         std::to_string(at.batch);
}

const Tensor kTensor{40, 3, 21, 2, 48};  // 40 columns: no multiple of a box
const BoxAt kBoxes[] = {{0, 0, 0, 0},  {32, 1, 16, 1}, {-8, 2, -3, 0}, {8, -1, 5, 1},
                        {64, 0, 0, 0}, {0, 1, 30, 0},  {0, 0, 2, 2}};
constexpr int kBoxRows = 8;

// A thread loads a box, everybody copies it out as it lies in shared memory.
void add_tensor_load(std::vector<PrimitiveCase>& cases) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const int heads : {1, 2}) {
      const std::uint32_t columns = swizzle ? static_cast<std::uint32_t>(swizzle) / 2 : 24;
      const std::size_t row_bytes = 2 * columns, box_bytes = row_bytes * kBoxRows * static_cast<std::size_t>(heads);
      const Words words = random_words(kTensor.elements(), 11);
      std::string body = R"(
const u32 full = shared_base() + 4096;
if (thread == 0) {
  mbarrier_init(full, 1);
  fence_mbarrier_init();
  prefetch_tensormap(args.in_map);
}
bar_sync();
)";
      Words expected;
      std::uint32_t phase = 0;
      for (const BoxAt& at : kBoxes) {
        body += "if (thread == 0) {\n  mbarrier_arrive_expect_tx(full, " + std::to_string(box_bytes) + ");\n" +
                "  cp_async_bulk_tensor_4d_load(shared_base(), args.in_map, full, " + coordinates(at) + ");\n}\n" +
                "mbarrier_wait_parity(full, " + std::to_string(phase % 2) + ");\n" + "for (u32 i = thread; i < " +
                std::to_string(box_bytes / 16) + "; i += 64) st_global_v4_b32(out_bytes(args, " +
                std::to_string(phase * box_bytes) +
                " + 16 * i), ld_shared_v4_b32(shared_base() + 16 * i));\nbar_sync();\n";
        ++phase;
        Words box(box_bytes / 2);
        for (std::size_t row = 0; row < kBoxRows; ++row) {
          for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head) {
            for (std::size_t column = 0; column < columns; ++column) {
              const auto from = element_of(kTensor, at, column, head, row);
              box[swizzled_place(row * static_cast<std::size_t>(heads) + head, column, row_bytes,
                                 static_cast<std::size_t>(swizzle)) /
                  2] = from ? words[*from] : 0;
            }
          }
        }
        expected.insert(expected.end(), box.begin(), box.end());
      }
      PrimitiveCase test{"cp_async_bulk_tensor_4d_load, swizzle of " + std::to_string(swizzle) + " bytes, " +
                             std::to_string(heads) + " heads",
                         sm90_kernel(body, 64, 4096 + 16), bytes_of(words), 2 * expected.size(), exactly(expected)};
      test.kernel.in_map = kTensor.map(columns, static_cast<std::uint32_t>(heads), kBoxRows, swizzle);
      cases.push_back(test);
    }
  }
}

// A map whose copies end where `size` rows do, as attention/kv_source_used_tensor_map has it: rows behind that are
// zeros, though the tensor has more. Each box begins within its sequence.
void add_tensor_load_of_sizes(std::vector<PrimitiveCase>& cases) {
  struct Load {
    BoxAt at;
    int size;
  };
  const Load loads[] = {{{0, 0, 0, 0}, 21}, {{32, 1, 16, 1}, 21}, {{0, 2, 0, 1}, 5},  {{8, 1, 8, 1}, 9},
                        {{0, 0, 8, 0}, 10}, {{0, 1, 0, 1}, 1},    {{0, 0, 16, 1}, 20}};
  constexpr std::uint32_t kColumns = 32;
  constexpr std::size_t kRowBytes = 2 * kColumns, kBytes = kRowBytes * kBoxRows;
  const Words words = random_words(kTensor.elements(), 15);
  std::string body = R"(
const u32 full = shared_base() + 4096;
if (thread == 0) {
  mbarrier_init(full, 1);
  fence_mbarrier_init();
}
bar_sync();
)";
  Words expected;
  std::size_t phase = 0;
  for (const Load& load : loads) {
    const BoxAt& at = load.at;
    body += "if (thread == 0) {\n  mbarrier_arrive_expect_tx(full, " + std::to_string(kBytes) + ");\n" +
            "  cp_async_bulk_tensor_5d_load(shared_base(), args.in_map, full, " + std::to_string(at.dim) + ", " +
            std::to_string(at.head) + ", " + std::to_string(static_cast<int>(kTensor.rows) - load.size + at.row) +
            ", " + std::to_string(load.size) + ", " + std::to_string(at.batch) + ");\n}\n" +
            "mbarrier_wait_parity(full, " + std::to_string(phase % 2) + ");\n" + "for (u32 i = thread; i < " +
            std::to_string(kBytes / 16) + "; i += 64) st_global_v4_b32(out_bytes(args, " +
            std::to_string(phase * kBytes) + " + 16 * i), ld_shared_v4_b32(shared_base() + 16 * i));\nbar_sync();\n";
    ++phase;
    Words box(kBytes / 2);
    for (std::size_t row = 0; row < kBoxRows; ++row) {
      for (std::size_t column = 0; column < kColumns; ++column) {
        const bool exists = at.row + static_cast<int>(row) < load.size;
        const auto from = exists ? element_of(kTensor, at, column, 0, row) : std::nullopt;
        box[swizzled_place(row, column, kRowBytes, 64) / 2] = from ? words[*from] : 0;
      }
    }
    expected.insert(expected.end(), box.begin(), box.end());
  }
  PrimitiveCase test{"cp_async_bulk_tensor_5d_load, sequences of several sizes", sm90_kernel(body, 64, 4096 + 16),
                     bytes_of(words), 2 * expected.size(), exactly(expected)};
  const std::uint64_t row = 2 * kTensor.row_stride * kTensor.heads;
  test.kernel.in_map = {.address = 0 - kTensor.rows * row,
                        .rank = 5,
                        .dims = {kTensor.dim, kTensor.heads, kTensor.rows, kTensor.rows + 1, kTensor.batches},
                        .strides_bytes = {2 * kTensor.row_stride, row, row, row * kTensor.rows},
                        .box = {kColumns, 1, kBoxRows, 1, 1},
                        .swizzle_bytes = 64};
  cases.push_back(test);
}

// Boxes of one size fill a ring of two stages, several loads to a barrier; three warps read each stage, then hand it
// back.
void add_pipeline(std::vector<PrimitiveCase>& cases) {
  const Tensor tensor{64, 2, 80, 1, 64};
  const Words words = random_words(tensor.elements(), 12);
  Words expected;
  for (int block = 0; block < 10; ++block) {
    for (int head = 0; head < 2; ++head) {
      Words box(64 * 8);
      for (std::size_t row = 0; row < 8; ++row) {
        for (std::size_t column = 0; column < 64; ++column)
          box[swizzled_place(row, column, 128, 128) / 2] =
              words[*element_of(tensor, {0, head, 8 * block, 0}, column, 0, row)];
      }
      expected.insert(expected.end(), box.begin(), box.end());
    }
  }
  PrimitiveCase test{
      "mbarrier_arrive_expect_tx mbarrier_wait_parity mbarrier_test_wait_parity mbarrier_arrive, a ring of two stages",
      sm90_kernel(R"(
constexpr u32 kStage = 2048, kBlocks = 10;
const u32 full = shared_base() + 2 * kStage, empty = full + 16;
if (thread == 0) {
  for (u32 i = 0; i < 2; ++i) {
    mbarrier_init(full + 8 * i, 1);
    mbarrier_init(empty + 8 * i, 3);
  }
  fence_mbarrier_init();
}
bar_sync();
if (thread < 32) {
  for (u32 block = 0; thread == 0 && block < kBlocks; ++block) {
    const u32 stage = block % 2, to = shared_base() + stage * kStage;
    while (!mbarrier_test_wait_parity(empty + 8 * stage, (block / 2 & 1) ^ 1)) {
    }
    mbarrier_arrive_expect_tx(full + 8 * stage, kStage);
    cp_async_bulk_tensor_4d_load(to, args.in_map, full + 8 * stage, 0, 0, 8 * block, 0);
    cp_async_bulk_tensor_4d_load(to + 1024, args.in_map, full + 8 * stage, 0, 1, 8 * block, 0);
  }
} else {
  for (u32 block = 0; block < kBlocks; ++block) {
    const u32 stage = block % 2, from = shared_base() + stage * kStage;
    mbarrier_wait_parity(full + 8 * stage, block / 2 & 1);
    for (u32 i = thread - 32; i < kStage / 16; i += 96)
      st_global_v4_b32(out_bytes(args, block * kStage + 16 * i), ld_shared_v4_b32(from + 16 * i));
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(empty + 8 * stage);
  }
}
)",
                  128, 4096 + 32),
      bytes_of(words), 2 * expected.size(), exactly(expected)};
  test.kernel.in_map = tensor.map(64, 1, 8, 128);
  cases.push_back(test);
}

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

void add_tensor_store(std::vector<PrimitiveCase>& cases) {
  for (const int swizzle : {0, 32, 64, 128}) {
    const std::uint32_t columns = swizzle ? static_cast<std::uint32_t>(swizzle) / 2 : 24;
    const std::size_t row_bytes = 2 * columns, box_bytes = row_bytes * kBoxRows;
    // Boxes do not overlap: which of two stores comes later is not said.
    const BoxAt boxes[] = {{0, 0, 0, 0}, {32, 1, 18, 0}, {24, 2, 16, 1}, {0, 3, 0, 0}, {0, 2, 5, 0}, {16, 1, 13, 1}};
    const std::size_t count = std::size(boxes);
    const Words words = random_words(count * box_bytes / 2, 13);  // the boxes as they lie in shared memory
    Words expected(kTensor.elements(), 0xffff);
    std::string stores;
    for (std::size_t box = 0; box < count; ++box) {
      for (std::size_t row = 0; row < kBoxRows; ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
          if (const auto to = element_of(kTensor, boxes[box], column, 0, row)) {
            expected[*to] =
                words[(box * box_bytes + swizzled_place(row, column, row_bytes, static_cast<std::size_t>(swizzle))) /
                      2];
          }
        }
      }
      // Two buffers take turns: a buffer is written when all groups but the youngest have read theirs.
      stores += "if (thread == 0) cp_async_bulk_wait_group_read<1>();\nbar_sync();\nput(" + std::to_string(box) +
                ");\nfence_proxy_async();\nbar_sync();\nif (thread == 0) {\n" +
                "  cp_async_bulk_tensor_4d_store(args.out_map, buffer(" + std::to_string(box) + "), " +
                coordinates(boxes[box]) + ");\n  cp_async_bulk_commit_group();\n}\n";
    }
    const std::string box = std::to_string(box_bytes);
    PrimitiveCase test{
        "cp_async_bulk_tensor_4d_store, swizzle of " + std::to_string(swizzle) + " bytes",
        sm90_kernel("const auto buffer = [](u32 box) { return shared_base() + box % 2 * 1024; };\n"
                    "const auto put = [&](u32 box) {\n  for (u32 i = thread; i < " +
                        box +
                        " / 16; i += 64) {\n"
                        "    const u32 from = box * " +
                        box +
                        " / 4 + 4 * i;\n"
                        "    st_shared_v4_b32(buffer(box) + 16 * i, Vec4{in_u32(args, from), in_u32(args, from + 1), "
                        "in_u32(args, from + 2), in_u32(args, from + 3)});\n  }\n};\n" +
                        stores + "if (thread == 0) cp_async_bulk_wait_group_read<0>();\n",
                    64, 2048),
        bytes_of(words), 2 * expected.size(), exactly(expected)};
    test.kernel.out_map = kTensor.map(columns, 1, kBoxRows, swizzle);
    cases.push_back(test);
  }
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

void add_clusters(std::vector<PrimitiveCase>& cases) {
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
  // Of a launch that follows no other, and that none follows: neither waits for anything.
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
    add_tensor_load(made);
    add_tensor_load_of_sizes(made);
    add_pipeline(made);
    add_matrix_store(made);
    add_transposed_matrix_store(made);
    add_bulk_load(made);
    add_widening(made);
    add_nan_extremes(made);
    add_tensor_store(made);
    add_bulk_add(made);
    add_clusters(made);
    add_registers_and_atomics(made);
    add_wgmma_cases(made);
    return made;
  }();
  return cases;
}

}  // namespace attune::tests
