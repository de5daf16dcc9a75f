#include "tests/primitives/sm90_cases.h"

#include <cmath>
#include <cstring>
#include <random>

#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint16_t>;

// Bit for bit.
template <typename T>
std::function<std::string(const Bytes&)> exactly(std::vector<T> expected) {
  return [expected = std::move(expected)](const Bytes& output) -> std::string {
    const std::vector<T> actual = values_of<T>(output);
    if (actual.size() != expected.size()) return "the output has another size";
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0) {
        return "element " + std::to_string(i) + " is " + std::to_string(actual[i]) + " instead of " +
               std::to_string(expected[i]);
      }
    }
    return {};
  };
}

Words random_words(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Words words(count);
  for (auto& word : words) word = static_cast<std::uint16_t>(random());
  return words;
}

TestKernel sm90_kernel(std::string body, int threads, std::size_t shared_bytes, std::uint32_t grid = 1) {
  TestKernel kernel{std::move(body), threads, shared_bytes, grid};
  kernel.sm90 = true;
  return kernel;
}

// Where the element at `column` of row `row` lies in a tile whose rows of `row_bytes` bytes follow each other, in
// bytes: 16-byte chunks change places by the number of their row, as the manual's pictures of the swizzles show.
std::size_t swizzled_place(std::size_t row, std::size_t column, std::size_t row_bytes, std::size_t swizzle_bytes) {
  const std::size_t flat = row * row_bytes + 2 * column;
  if (swizzle_bytes == 0) return flat;
  const std::size_t line = flat / 128, chunk = flat / 16 % 8, in_chunk = flat % 16;
  const std::size_t period = swizzle_bytes / 16;  // chunks that change places with one another
  return line * 128 + (chunk / period * period + (chunk % period ^ line % period)) * 16 + in_chunk;
}

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
      u_int32_t phase = 0;
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

// A matrix of small integers.
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> values;
  Matrix(std::size_t rows, std::size_t columns, std::mt19937& random) : rows(rows), columns(columns) {
    for (std::size_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<int>(random() % 17) - 8);
  }
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

// Puts a matrix into shared memory as panels: `span` bytes of columns of all rows, swizzled, one panel after the other.
// A panel has whole periods of the swizzle.
Bytes panels_of(const Matrix& matrix, std::size_t span, bool bf16) {
  const std::size_t columns = span / 2, panels = (matrix.columns + columns - 1) / columns;
  Bytes bytes(panels * matrix.rows * span, 0);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    for (std::size_t column = 0; column < matrix.columns; ++column) {
      const double x = matrix.at(row, column);
      const std::uint16_t bits = bf16 ? encode_bf16(x) : encode_f16(x);
      std::memcpy(&bytes[column / columns * matrix.rows * span + swizzled_place(row, column % columns, span, span)],
                  &bits, 2);
    }
  }
  return bytes;
}

// D = A B over K = 32 or more, in chained products, then once more on top: D = A B + A B.
void add_wgmma(std::vector<PrimitiveCase>& cases, int n, int k, std::size_t span, bool transposed, bool from_registers,
               bool bf16) {
  std::mt19937 random(static_cast<std::uint32_t>(n) + 1000u * static_cast<std::uint32_t>(span));
  const auto columns = static_cast<std::size_t>(n), depth = static_cast<std::size_t>(k);
  const Matrix a(64, depth, random);
  const Matrix b(transposed ? depth : columns, transposed ? columns : depth, random);  // as it lies in memory
  const auto b_at = [&](std::size_t i, std::size_t j) { return transposed ? b.at(i, j) : b.at(j, i); };
  std::vector<float> expected;
  for (std::size_t row = 0; row < 64; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::size_t i = 0; i < depth; ++i) sum += a.at(row, i) * b_at(i, column);
      expected.push_back(static_cast<float>(2 * sum));
    }
  }
  const Bytes a_bytes = panels_of(a, span, bf16), b_bytes = panels_of(b, span, bf16);
  // B begins at a whole period of the widest swizzle.
  const std::size_t b_offset = (a_bytes.size() + 1023) / 1024 * 1024;
  Bytes input = a_bytes;
  input.resize(b_offset);
  input.insert(input.end(), b_bytes.begin(), b_bytes.end());
  const std::size_t shared_bytes = (input.size() + 1023) / 1024 * 1024;
  for (std::size_t row = 0; row < 64; ++row) {  // A once more, row by row, for fragments
    for (std::size_t i = 0; i < depth; ++i) {
      const std::uint16_t bits = bf16 ? encode_bf16(a.at(row, i)) : encode_f16(a.at(row, i));
      input.push_back(static_cast<std::uint8_t>(bits));
      input.push_back(static_cast<std::uint8_t>(bits >> 8));
    }
  }
  const auto number = [](std::size_t x) { return std::to_string(x); };
  const std::string constants = "constexpr u32 N = " + number(columns) + ", K = " + number(depth) +
                                ", SPAN = " + number(span) + ", B = " + number(b_offset) +
                                ", BYTES = " + number(input.size() - 128 * depth) + ", ROWS = " + number(b.rows) +
                                ";\n" + "constexpr u64 MODE = " +
                                (span == 128  ? "1"
                                 : span == 64 ? "2"
                                              : "3") +
                                ";\n";
  const std::string flags = transposed ? "true" : "false";
  std::string product;
  for (const char* accumulate : {"false", "true"}) {
    const std::string first = std::string("if (k == 0) ") + (from_registers ? "wgmma_rs<" : "wgmma_ss<") + accumulate +
                              ", " + flags + ">(d, ";
    const std::string rest =
        std::string("else ") + (from_registers ? "wgmma_rs<" : "wgmma_ss<") + "true, " + flags + ">(d, ";
    const std::string operands = std::string(from_registers ? "a, k, " : "descriptor(shared_base() + a_step, 0), ") +
                                 "descriptor(shared_base() + B + b_step, ROWS * SPAN));\n";
    product += "#pragma unroll\nfor (u32 k = 0; k < K / 16; ++k) {\n";
    product += "  const u32 a_step = k / (SPAN / 32) * 64 * SPAN + k % (SPAN / 32) * 32;\n";
    product += transposed ? "  const u32 b_step = k * 16 * SPAN;\n"
                          : "  const u32 b_step = k / (SPAN / 32) * ROWS * SPAN + k % (SPAN / 32) * 32;\n";
    product += "  (void)a_step;\n  " + first + operands + "  " + rest + operands + "}\n";
  }
  const std::string body = constants + R"(
for (u32 i = thread; i < BYTES / 16; i += 128)
  st_shared_v4_b32(shared_base() + 16 * i, Vec4{in_u32(args, 4 * i), in_u32(args, 4 * i + 1), in_u32(args, 4 * i + 2), in_u32(args, 4 * i + 3)});
fence_proxy_async();
bar_sync();
const auto descriptor = [](u32 address, u32 leading) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(leading >> 4) << 16 | static_cast<u64>(8 * SPAN >> 4) << 32 | MODE << 62;
};
const u32 row = thread / 32 * 16 + thread % 32 / 4, column = 2 * (thread % 4);
u32 a[K / 4];
#pragma unroll
for (u32 i = 0; i < K / 4; ++i)
  a[i] = in_u32(args, BYTES / 4 + ((row + i % 2 * 8) * K + i / 4 * 16 + i % 4 / 2 * 8 + column) / 2);
float d[N / 2];
#pragma unroll
for (u32 i = 0; i < N / 2; ++i) d[i] = 1000.0f;
wgmma_fence();
)" + product + R"(
wgmma_commit_group();
wgmma_wait_group<0>();
wgmma_landed(d);
#pragma unroll
for (u32 i = 0; i < N / 2; ++i) out_f32(args, (row + i / 2 % 2 * 8) * N + i / 4 * 8 + column + i % 2, d[i]);
)" + (from_registers ? "" : "(void)a;\n");
  PrimitiveCase test{std::string(from_registers ? "wgmma_rs" : "wgmma_ss") + " N = " + number(columns) + ", span " +
                         number(span) + (transposed ? ", MN-major" : ", K-major") + (bf16 ? ", bf16" : ", fp16"),
                     sm90_kernel(body, 128, shared_bytes), input, 4 * expected.size(), exactly(expected)};
  test.kernel.dtype = bf16 ? "bf16" : "f16";
  test.kernel.wgmma_ns = {n};
  cases.push_back(test);
}

void add_wgmmas(std::vector<PrimitiveCase>& cases) {
  // Every shape with every span and both layouts of B; the kind of A and the format change along.
  int i = 0;
  for (const int n : {8, 16, 64, 80, 128, 256}) {
    for (const std::size_t span : {128, 64, 32}) {
      for (const bool transposed : {false, true}) {
        ++i;
        add_wgmma(cases, n, span == 32 ? 32 : 80, span, transposed, i % 2 == 0, i % 4 < 2);
        add_wgmma(cases, n, span == 32 ? 32 : 64, span, transposed, i % 2 != 0, i % 3 == 0);
      }
    }
  }
}

}  // namespace

const std::vector<PrimitiveCase>& sm90_cases() {
  static const std::vector<PrimitiveCase> cases = [] {
    std::vector<PrimitiveCase> made;
    add_tensor_load(made);
    add_wgmmas(made);
    return made;
  }();
  return cases;
}

}  // namespace attune::tests
