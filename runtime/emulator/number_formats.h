#pragma once

#include <bit>
#include <cstdint>

namespace attune {

/// The number that the low 16 bits are in bf16, or in fp16.
inline float bf16_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

inline float f16_to_float(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffu;
  const float value = magnitude >= 0x7c00u ? std::bit_cast<float>(0x7f800000u | magnitude << 13)
                                           : std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (bits & 0x8000u) << 16);
}

}  // namespace attune
