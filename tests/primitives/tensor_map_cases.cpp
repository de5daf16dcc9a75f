#include "tests/primitives/tensor_map_cases.h"

#include <iterator>
#include <string>

#include "tests/primitives/sm90_case.h"
#include "tests/primitives/tensor_boxes.h"

namespace attune::tests {
namespace {

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

}  // namespace

void add_tensor_map_cases(std::vector<PrimitiveCase>& cases) {
  add_tensor_load(cases);
  add_tensor_load_of_sizes(cases);
  add_pipeline(cases);
  add_tensor_store(cases);
}

}  // namespace attune::tests
