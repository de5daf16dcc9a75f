#include "runtime/emulator/warpgroup_instructions.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/emulator/number_formats.h"
#include "runtime/emulator/tensor_map.h"

namespace attune {
namespace {

// Eight columns. Never passed by value: where they travel depends on the processor.
typedef double Columns __attribute__((vector_size(8 * sizeof(double))));
typedef float FloatColumns __attribute__((vector_size(8 * sizeof(float))));

// kRows rows at once are as many independent sums.
template <std::uint32_t kRows>
__attribute__((always_inline)) inline void multiply_add_rows(float* values, std::uint32_t n, bool accumulate,
                                                             const WarpgroupOperands& operands) {
  for (std::uint32_t column = 0; column < n; column += 8) {
    for (std::uint32_t row = 0; row < 64; row += kRows) {
      Columns sums[kRows] = {};
      FloatColumns rounded;
      float* d = values + row * n + column;
      if (accumulate) {
#pragma GCC unroll 8
        for (std::uint32_t r = 0; r < kRows; ++r) {
          std::memcpy(&rounded, d + r * n, sizeof rounded);
          sums[r] = __builtin_convertvector(rounded, Columns);
        }
      }
      for (std::uint32_t k = 0; k < 16; ++k) {
        Columns b;
        std::memcpy(&b, &operands.b[k][column], sizeof b);
#pragma GCC unroll 8
        for (std::uint32_t r = 0; r < kRows; ++r) sums[r] += operands.a[row + r][k] * b;
      }
#pragma GCC unroll 8
      for (std::uint32_t r = 0; r < kRows; ++r) {
        rounded = __builtin_convertvector(sums[r], FloatColumns);
        std::memcpy(d + r * n, &rounded, sizeof rounded);
      }
    }
  }
}

// For several processors. All give the same bits: the products are exact, so that a fused sum rounds as a separate one,
// and each element has its own sum.
using MultiplyAdd = void(float*, std::uint32_t, bool, const WarpgroupOperands&);
void multiply_add_anywhere(float* values, std::uint32_t n, bool accumulate, const WarpgroupOperands& operands) {
  multiply_add_rows<2>(values, n, accumulate, operands);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_add_avx2(float* values, std::uint32_t n, bool accumulate,
                                                           const WarpgroupOperands& operands) {
  multiply_add_rows<4>(values, n, accumulate, operands);
}
__attribute__((target("avx512f"))) void multiply_add_avx512(float* values, std::uint32_t n, bool accumulate,
                                                            const WarpgroupOperands& operands) {
  multiply_add_rows<8>(values, n, accumulate, operands);
}
#endif
MultiplyAdd* fastest_multiply_add() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_add_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_add_avx2;
#endif
  return multiply_add_anywhere;
}

template <bool kBf16>
double number(std::uint16_t bits) {
  return kBf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

template <bool kBf16>
void unpack_row_chunks(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base,
                       double* to, std::size_t row_stride, std::size_t k_stride) {
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    std::uint16_t elements[8];
    std::memcpy(elements, shared + (chunks[chunk] - base), sizeof elements);
    double* out = to + chunk / 2 * row_stride + chunk % 2 * 8 * k_stride;
    for (std::size_t i = 0; i < 8; ++i) out[i * k_stride] = number<kBf16>(elements[i]);
  }
}

template <bool kBf16>
void unpack_column_chunks(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base,
                          std::size_t rows, double* to, std::size_t row_stride, std::size_t k_stride) {
  const std::size_t chunks_of_k = rows / 8;
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    std::uint16_t elements[8];
    std::memcpy(elements, shared + (chunks[chunk] - base), sizeof elements);
    double* out = to + chunk / chunks_of_k * k_stride + chunk % chunks_of_k * 8 * row_stride;
    for (std::size_t i = 0; i < 8; ++i) out[i * row_stride] = number<kBf16>(elements[i]);
  }
}

template <bool kBf16>
void unpack_fragments(const std::uint32_t* const* a, WarpgroupOperands& to) {
  for (std::size_t thread = 0; thread < 128; ++thread) {
    const std::size_t row = thread / 32 * 16 + thread % 32 / 4, k = 2 * (thread % 4);
    for (std::size_t i = 0; i < 4; ++i) {
      double* out = &to.a[row + i % 2 * 8][k + i / 2 * 8];
      out[0] = number<kBf16>(static_cast<std::uint16_t>(a[thread][i]));
      out[1] = number<kBf16>(static_cast<std::uint16_t>(a[thread][i] >> 16));
    }
  }
}

}  // namespace

void MatrixOperand::chunks(std::vector<std::uint32_t>& addresses) const {
  addresses.clear();
  if (mn_major) {
    for (std::uint32_t k = 0; k < 16; ++k) {
      const std::uint32_t row = address + k / 8 * stride_bytes + k % 8 * swizzle_bytes;
      for (std::uint32_t byte = 0; byte < 2 * rows; byte += 16) {
        addresses.push_back(swizzled(row + byte / swizzle_bytes * leading_bytes + byte % swizzle_bytes, swizzle_bytes));
      }
    }
  } else {
    for (std::uint32_t i = 0; i < rows; ++i) {
      const std::uint32_t row = address + i / 8 * stride_bytes + i % 8 * swizzle_bytes;
      addresses.push_back(swizzled(row, swizzle_bytes));
      addresses.push_back(swizzled(row + 16, swizzle_bytes));
    }
  }
}

MatrixOperand matrix_operand(std::uint64_t descriptor, std::uint32_t rows, bool mn_major, std::string& complaint) {
  const auto field = [descriptor](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3fff) << 4; };
  MatrixOperand operand{.address = field(0),
                        .leading_bytes = field(16),
                        .stride_bytes = field(32),
                        .swizzle_bytes = 0,
                        .rows = rows,
                        .mn_major = mn_major};
  const auto mode = static_cast<std::uint32_t>(descriptor >> 62);
  const auto base_offset = static_cast<std::uint32_t>(descriptor >> 49 & 7);
  if (mode == 0) {
    complaint = "has no swizzle; the emulator takes those of 32, 64 and 128 bytes";
    return operand;
  }
  const std::uint32_t span = operand.swizzle_bytes = 256u >> mode;
  const std::uint32_t in_span = operand.address % span;
  if (base_offset != 0) {
    complaint = fmt::format("has the base offset {}; the emulator takes 0", base_offset);
  } else if ((operand.address - in_span) % (8 * span) != 0) {
    complaint = fmt::format("begins at {:#x}; with a swizzle of {} bytes its rows must begin at a multiple of {}",
                            operand.address, span, 8 * span);
  } else if (!mn_major && in_span + 32 > span) {
    complaint = fmt::format("begins {} bytes into a span of {}; 16 elements of K do not fit", in_span, span);
  } else if (mn_major && in_span != 0) {
    complaint = fmt::format("begins {} bytes into a span of {}; MN-major it must begin with one", in_span, span);
  }
  return operand;
}

void unpack_a(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, bool mn_major,
              bool bf16, WarpgroupOperands& to) {
  if (mn_major) {
    (bf16 ? unpack_column_chunks<true> : unpack_column_chunks<false>)(chunks, shared, base, 64, to.a[0], 16, 1);
  } else {
    (bf16 ? unpack_row_chunks<true> : unpack_row_chunks<false>)(chunks, shared, base, to.a[0], 16, 1);
  }
}

void unpack_b(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, std::uint32_t n,
              bool mn_major, bool bf16, WarpgroupOperands& to) {
  if (mn_major) {
    (bf16 ? unpack_column_chunks<true> : unpack_column_chunks<false>)(chunks, shared, base, n, to.b[0], 1,
                                                                      WarpgroupOperands::kColumns);
  } else {
    (bf16 ? unpack_row_chunks<true> : unpack_row_chunks<false>)(chunks, shared, base, to.b[0], 1,
                                                                WarpgroupOperands::kColumns);
  }
}

void unpack_a_fragments(const std::uint32_t* const* a, bool bf16, WarpgroupOperands& to) {
  (bf16 ? unpack_fragments<true> : unpack_fragments<false>)(a, to);
}

void warpgroup_multiply_add(float* values, std::uint32_t n, bool accumulate, const WarpgroupOperands& operands) {
  static MultiplyAdd* const multiply_add = fastest_multiply_add();
  multiply_add(values, n, accumulate, operands);
}

void gather_registers(const float* const* d, std::uint32_t warps, std::uint32_t n, float* values) {
  for (std::size_t thread = 0; thread < 32 * warps; ++thread) {
    float* row = values + (thread / 32 * 16 + thread % 32 / 4) * n + 2 * (thread % 4);
    const float* from = d[thread];
    for (std::size_t i = 0; i < n / 8; ++i) {
      std::memcpy(row + 8 * i, from + 4 * i, 8);
      std::memcpy(row + 8 * n + 8 * i, from + 4 * i + 2, 8);
    }
  }
}

void scatter_registers(const float* values, std::uint32_t warps, std::uint32_t n, float* const* d) {
  for (std::size_t thread = 0; thread < 32 * warps; ++thread) {
    const float* row = values + (thread / 32 * 16 + thread % 32 / 4) * n + 2 * (thread % 4);
    float* to = d[thread];
    for (std::size_t i = 0; i < n / 8; ++i) {
      std::memcpy(to + 4 * i, row + 8 * i, 8);
      std::memcpy(to + 4 * i + 2, row + 8 * n + 8 * i, 8);
    }
  }
}

}  // namespace attune
