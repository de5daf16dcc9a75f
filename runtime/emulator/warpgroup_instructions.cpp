#include "runtime/emulator/warpgroup_instructions.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/emulator/number_formats.h"
#include "runtime/emulator/tensor_map.h"

namespace attune {
namespace {

typedef double Columns __attribute__((vector_size(4 * sizeof(double))));
typedef float FloatColumns __attribute__((vector_size(4 * sizeof(float))));

// By reference: a vector of this size is returned in another way where AVX is at hand.
void load_columns(Columns& columns, const float* from) {
  FloatColumns rounded;
  std::memcpy(&rounded, from, sizeof rounded);
  columns = __builtin_convertvector(rounded, Columns);
}
void store_columns(float* to, const Columns& columns) {
  const FloatColumns rounded = __builtin_convertvector(columns, FloatColumns);
  std::memcpy(to, &rounded, sizeof rounded);
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
                          std::uint32_t n, WarpgroupOperands& to) {
  const std::size_t chunks_of_k = n / 8;
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    std::uint16_t elements[8];
    std::memcpy(elements, shared + (chunks[chunk] - base), sizeof elements);
    double* out = to.b[chunk / chunks_of_k] + chunk % chunks_of_k * 8;
    for (std::size_t i = 0; i < 8; ++i) out[i] = number<kBf16>(elements[i]);
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

void unpack_a(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, bool bf16,
              WarpgroupOperands& to) {
  (bf16 ? unpack_row_chunks<true> : unpack_row_chunks<false>)(chunks, shared, base, to.a[0], 16, 1);
}

void unpack_b(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, std::uint32_t n,
              bool mn_major, bool bf16, WarpgroupOperands& to) {
  if (mn_major) {
    (bf16 ? unpack_column_chunks<true> : unpack_column_chunks<false>)(chunks, shared, base, n, to);
  } else {
    (bf16 ? unpack_row_chunks<true> : unpack_row_chunks<false>)(chunks, shared, base, to.b[0], 1,
                                                                WarpgroupOperands::kColumns);
  }
}

void unpack_a_fragments(const std::uint32_t* const* a, bool bf16, WarpgroupOperands& to) {
  (bf16 ? unpack_fragments<true> : unpack_fragments<false>)(a, to);
}

// Compiled for several processors; all give the same bits, as the products are exact and each element has its own sum.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("arch=haswell", "default")))
#endif
void warpgroup_multiply_add(float* values, std::uint32_t n, bool accumulate, const WarpgroupOperands& operands) {
  for (std::uint32_t column = 0; column < n; column += 8) {
    for (std::uint32_t row = 0; row < 64; row += 4) {  // four rows at once: eight independent sums
      Columns sums[4][2] = {};
      float* d = values + row * n + column;
      if (accumulate) {
        for (std::uint32_t r = 0; r < 4; ++r) {
          load_columns(sums[r][0], d + r * n);
          load_columns(sums[r][1], d + r * n + 4);
        }
      }
      for (std::uint32_t k = 0; k < 16; ++k) {
        Columns left, right;
        std::memcpy(&left, &operands.b[k][column], sizeof left);
        std::memcpy(&right, &operands.b[k][column + 4], sizeof right);
        for (std::uint32_t r = 0; r < 4; ++r) {
          sums[r][0] += operands.a[row + r][k] * left;
          sums[r][1] += operands.a[row + r][k] * right;
        }
      }
      for (std::uint32_t r = 0; r < 4; ++r) {
        store_columns(d + r * n, sums[r][0]);
        store_columns(d + r * n + 4, sums[r][1]);
      }
    }
  }
}

void gather_registers(const float* const* d, std::uint32_t n, float* values) {
  for (std::size_t thread = 0; thread < 128; ++thread) {
    float* row = values + (thread / 32 * 16 + thread % 32 / 4) * n + 2 * (thread % 4);
    const float* from = d[thread];
    for (std::size_t i = 0; i < n / 8; ++i) {
      std::memcpy(row + 8 * i, from + 4 * i, 8);
      std::memcpy(row + 8 * n + 8 * i, from + 4 * i + 2, 8);
    }
  }
}

void scatter_registers(const float* values, std::uint32_t n, float* const* d) {
  for (std::size_t thread = 0; thread < 128; ++thread) {
    const float* row = values + (thread / 32 * 16 + thread % 32 / 4) * n + 2 * (thread % 4);
    float* to = d[thread];
    for (std::size_t i = 0; i < n / 8; ++i) {
      std::memcpy(to + 4 * i, row + 8 * i, 8);
      std::memcpy(to + 4 * i + 2, row + 8 * n + 8 * i, 8);
    }
  }
}

}  // namespace attune
