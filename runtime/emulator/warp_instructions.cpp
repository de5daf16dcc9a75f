#include "runtime/emulator/warp_instructions.h"

#include <cstring>

#include "runtime/emulator/number_formats.h"

namespace attune {
namespace {

typedef double HalfRow __attribute__((vector_size(4 * sizeof(double))));  // four columns of d, or of b

// Compiled twice on x86; both give the same bits, as the products are exact and each element has its own sum. With the
// thread sanitizer once: what chooses a clone would run before the sanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_add_tiles(HalfRow (*d)[2], const double (*a)[16], const HalfRow (*b)[2], std::uint32_t k) {
  for (int row = 0; row < 16; row += 2) {  // two rows at once: four independent sums
    HalfRow sum00 = d[row][0], sum01 = d[row][1], sum10 = d[row + 1][0], sum11 = d[row + 1][1];
    for (std::uint32_t i = 0; i < k; ++i) {
      const HalfRow left = b[i][0], right = b[i][1];
      sum00 += a[row][i] * left;
      sum01 += a[row][i] * right;
      sum10 += a[row + 1][i] * left;
      sum11 += a[row + 1][i] * right;
    }
    d[row][0] = sum00;
    d[row][1] = sum01;
    d[row + 1][0] = sum10;
    d[row + 1][1] = sum11;
  }
}

template <float (*kConvert)(std::uint32_t)>
void multiply_add(float* const* d, const std::uint32_t* const* a, const std::uint32_t* const* b, std::uint32_t k) {
  union Tile {
    HalfRow halves[16][2];
    double elements[16][8];
  };
  Tile d_rows, b_rows;
  auto& d_tile = d_rows.elements;
  auto& b_tile = b_rows.elements;
  double a_tile[16][16];
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
  multiply_add_tiles(d_rows.halves, a_tile, b_rows.halves, k);
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

void warp_transpose_matrix(std::uint32_t* results, const std::uint32_t* x) {
  const auto element = [&](std::uint32_t row, std::uint32_t column) {
    return x[4 * row + column / 2] >> (16 * (column % 2)) & 0xffffu;
  };
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const std::uint32_t row = lane / 4, column = 2 * (lane % 4);
    results[lane] = element(column + 1, row) << 16 | element(column, row);
  }
}

void warp_store_matrices(std::uint8_t* const* rows, const std::uint32_t* const* r, std::uint32_t count,
                         bool transpose) {
  for (std::uint32_t matrix = 0; matrix < count; ++matrix) {
    std::uint8_t* const* row = rows + 8 * matrix;
    for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if (transpose) {
        const auto low = static_cast<std::uint16_t>(r[lane][matrix]),
                   high = static_cast<std::uint16_t>(r[lane][matrix] >> 16);
        std::memcpy(row[2 * (lane % 4)] + 2 * (lane / 4), &low, 2);
        std::memcpy(row[2 * (lane % 4) + 1] + 2 * (lane / 4), &high, 2);
      } else {
        std::memcpy(row[lane / 4] + 4 * (lane % 4), &r[lane][matrix], 4);
      }
    }
  }
}

}  // namespace attune
