#pragma once

#include <cstdint>

namespace attune {

constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;  // 2^64 divided by it, odd

/// SplitMix64's output function (Steele, Lea, Flood 2014): one to one.
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace attune
