#include "runtime/oracle/checksum.h"

#include <algorithm>

#include "generator/mix_bits.h"

namespace attune {

std::uint64_t checksum(std::span<const std::uint16_t> elements) {
  constexpr std::size_t kWordElements = 4;
  std::uint64_t sum = 0;
  for (std::size_t first = 0; first < elements.size(); first += kWordElements) {
    std::uint64_t word = 0;
    const std::size_t count = std::min(kWordElements, elements.size() - first);
    for (std::size_t i = 0; i < count; ++i) word |= static_cast<std::uint64_t>(elements[first + i]) << (16 * i);
    sum += mix_bits(word + (first / kWordElements + 1) * kGoldenRatio);
  }
  return sum;
}

}  // namespace attune
