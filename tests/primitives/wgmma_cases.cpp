#include "tests/primitives/wgmma_cases.h"

#include <cstring>
#include <random>

#include "tests/primitives/number_formats.h"
#include "tests/primitives/sm90_case.h"

namespace attune::tests {
namespace {

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

// Where A comes from: K-major or MN-major from shared memory, or from registers.
enum class OperandA { k_major, mn_major, registers };

// D = A B over K = 32 or more, in chained products, then once more on top: D = A B + A B.
void add_wgmma(std::vector<PrimitiveCase>& cases, int n, int k, std::size_t span, bool transposed, OperandA kind,
               bool bf16) {
  const bool from_registers = kind == OperandA::registers, a_transposed = kind == OperandA::mn_major;
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
  Matrix a_of_memory(a_transposed ? depth : 64, a_transposed ? 64 : depth, random);
  for (std::size_t row = 0; row < 64; ++row) {
    for (std::size_t i = 0; i < depth; ++i)
      a_of_memory.values[a_transposed ? i * 64 + row : row * depth + i] = a.at(row, i);
  }
  const Bytes a_bytes = panels_of(a_of_memory, span, bf16), b_bytes = panels_of(b, span, bf16);
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
  const std::string constants =
      "constexpr u32 N = " + number(columns) + ", K = " + number(depth) + ", SPAN = " + number(span) +
      ", B = " + number(b_offset) + ", BYTES = " + number(input.size() - 128 * depth) + ", ROWS = " + number(b.rows) +
      ";\nconstexpr bool TRANSPOSED_A = " + (a_transposed ? "true" : "false") + ";\nconstexpr u64 MODE = " +
      (span == 128  ? "1"
       : span == 64 ? "2"
                    : "3") +
      ";\n";
  const std::string flags = transposed ? "true" : "false";
  const std::string name = from_registers ? "wgmma_rs" : a_transposed ? "wgmma_ss_transposed_a" : "wgmma_ss";
  std::string product;
  for (const char* accumulate : {"false", "true"}) {
    const bool overwrites = !from_registers && n % 64 == 0 && std::string(accumulate) == "false";
    const std::string first =
        "if (k == 0) " + name + (overwrites ? "_first<" : std::string("<") + accumulate + ", ") + flags + ">(d, ";
    const std::string rest = "else " + name + "<true, " + flags + ">(d, ";
    const std::string operands =
        std::string(from_registers ? "a, k, " : "descriptor(shared_base() + a_step, TRANSPOSED_A ? K * SPAN : 0), ") +
        "descriptor(shared_base() + B + b_step, ROWS * SPAN));\n";
    product += "#pragma unroll\nfor (u32 k = 0; k < K / 16; ++k) {\n";
    product += a_transposed ? "  const u32 a_step = k * 16 * SPAN;\n"
                            : "  const u32 a_step = k / (SPAN / 32) * 64 * SPAN + k % (SPAN / 32) * 32;\n";
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
)" + (from_registers ? "(void)TRANSPOSED_A;\n" : "(void)a;\n");
  PrimitiveCase test{name + " N = " + number(columns) + ", span " + number(span) +
                         (transposed ? ", MN-major" : ", K-major") + (bf16 ? ", bf16" : ", fp16"),
                     sm90_kernel(body, 128, shared_bytes), input, 4 * expected.size(), exactly(expected)};
  test.kernel.dtype = bf16 ? "bf16" : "f16";
  test.kernel.wgmma_ns = {n};
  cases.push_back(test);
}

}  // namespace

void add_wgmma_cases(std::vector<PrimitiveCase>& cases) {
  // Every shape with every span and both layouts of B; the kind of A and the format change along.
  int i = 0;
  for (const int n : {8, 16, 64, 80, 128, 256}) {
    for (const std::size_t span : {128, 64, 32}) {
      for (const bool transposed : {false, true}) {
        ++i;
        const OperandA even = i % 2 == 0 ? OperandA::registers : OperandA::k_major,
                       odd = i % 2 != 0 ? OperandA::registers : OperandA::k_major;
        add_wgmma(cases, n, span == 32 ? 32 : 80, span, transposed, even, i % 4 < 2);
        add_wgmma(cases, n, span == 32 ? 32 : 64, span, transposed, odd, i % 3 == 0);
        add_wgmma(cases, n, span == 32 ? 32 : 80, span, transposed, OperandA::mn_major, i % 4 < 2);
      }
    }
  }
}

}  // namespace attune::tests
