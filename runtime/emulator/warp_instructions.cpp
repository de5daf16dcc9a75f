#include "runtime/emulator/warp_instructions.h"

#include <bit>
#include <cstring>

namespace attune {
namespace {

float bf16_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

float f16_to_float(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffu;
  const float value = magnitude >= 0x7c00u ? std::bit_cast<float>(0x7f800000u | magnitude << 13)
                                           : std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (bits & 0x8000u) << 16);
}

typedef double Columns __attribute__((vector_size(8 * sizeof(double))));  // one row of d, or of b

// Compiled twice on x86; both give the same bits, as the products are exact and each element has its own sum.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_add_tiles(double (*d)[8], const double (*a)[16], const double (*b)[8], std::uint32_t k) {
  for (int row = 0; row < 16; ++row) {
    Columns sum;
    std::memcpy(&sum, d[row], sizeof sum);
    for (std::uint32_t i = 0; i < k; ++i) {
      Columns column;
      std::memcpy(&column, b[i], sizeof column);
      sum += a[row][i] * column;
    }
    std::memcpy(d[row], &sum, sizeof sum);
  }
}

template <float (*kConvert)(std::uint32_t)>
void multiply_add(float* const* d, const std::uint32_t* const* a, const std::uint32_t* const* b, std::uint32_t k) {
  alignas(64) double d_tile[16][8];
  alignas(64) double a_tile[16][16];
  alignas(64) double b_tile[16][8];
  const auto unpack = [](std::uint32_t pair, double& low, double& high) {
    low = kConvert(pair & 0xffffu);
    high = kConvert(pair >> 16);
  };
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const std::uint32_t row = lane / 4;
    const std::uint32_t column = 2 * (lane % 4);
    for (std::uint32_t half = 0; half < k / 8; ++half) {
      const std::uint32_t i = 8 * half + column;
      unpack(a[lane][2 * half], a_tile[row][i], a_tile[row][i + 1]);
      unpack(a[lane][2 * half + 1], a_tile[row + 8][i], a_tile[row + 8][i + 1]);
      unpack(b[lane][half], b_tile[i][row], b_tile[i + 1][row]);
    }
    d_tile[row][column] = d[lane][0];
    d_tile[row][column + 1] = d[lane][1];
    d_tile[row + 8][column] = d[lane][2];
    d_tile[row + 8][column + 1] = d[lane][3];
  }
  multiply_add_tiles(d_tile, a_tile, b_tile, k);
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const std::uint32_t row = lane / 4;
    const std::uint32_t column = 2 * (lane % 4);
    d[lane][0] = static_cast<float>(d_tile[row][column]);
    d[lane][1] = static_cast<float>(d_tile[row][column + 1]);
    d[lane][2] = static_cast<float>(d_tile[row + 8][column]);
    d[lane][3] = static_cast<float>(d_tile[row + 8][column + 1]);
  }
}

}  // namespace

void warp_multiply_add(float* const* d, const std::uint32_t* const* a, const std::uint32_t* const* b, std::uint32_t k,
                       bool bf16) {
  if (bf16) {
    multiply_add<bf16_to_float>(d, a, b, k);
  } else {
    multiply_add<f16_to_float>(d, a, b, k);
  }
}

void warp_load_matrices(std::uint32_t* const* r, const std::uint8_t* const* rows, std::uint32_t count, bool transpose) {
  for (std::uint32_t matrix = 0; matrix < count; ++matrix) {
    const std::uint8_t* const* row = rows + 8 * matrix;
    for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if (transpose) {
        std::uint16_t low, high;
        std::memcpy(&low, row[2 * (lane % 4)] + 2 * (lane / 4), 2);
        std::memcpy(&high, row[2 * (lane % 4) + 1] + 2 * (lane / 4), 2);
        r[lane][matrix] = static_cast<std::uint32_t>(high) << 16 | low;
      } else {
        std::memcpy(&r[lane][matrix], row[lane / 4] + 4 * (lane % 4), 4);
      }
    }
  }
}

}  // namespace attune
