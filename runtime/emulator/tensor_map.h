#pragma once

#include <array>
#include <cstdint>

#include "runtime/device.h"

namespace attune {

/// What encode_tensor_map() of the emulator writes: as long as a CUtensorMap, but readable. Trivially copyable.
struct EmulatedTensorMap {
  static constexpr std::uint64_t kMagic = 0x70616d2d65747461;  // tells it from anything else

  std::uint64_t magic = 0;
  std::uint64_t address = 0;                         ///< of its first element
  std::array<std::uint64_t, 5> dims{1, 1, 1, 1, 1};  ///< in elements, the contiguous one first; 1 beyond the rank
  std::array<std::uint64_t, 4> strides_bytes{};      ///< of dims 1 to 4
  std::array<std::uint32_t, 5> box{1, 1, 1, 1, 1};   ///< in elements
  std::uint32_t swizzle_bytes = 0;                   ///< 0, 32, 64, 128
  std::uint32_t element_bytes = 2;
  std::uint32_t rank = 4;
  std::uint64_t unused = 0;

  std::uint32_t box_bytes() const { return box[0] * box[1] * box[2] * box[3] * box[4] * element_bytes; }
};
static_assert(sizeof(EmulatedTensorMap) == 128);

/// Where a byte of a swizzled tile lies, all of it in shared addresses: bits 4 and up are combined with bits 7 and up.
inline std::uint32_t swizzled(std::uint32_t address, std::uint32_t swizzle_bytes) {
  return swizzle_bytes ? address ^ (address >> 3 & (swizzle_bytes - 16)) : address;
}

/// Throws Error(invalid_argument) that names the number for what cuTensorMapEncodeTiled refuses: an address or a stride
/// that is no multiple of 16, a stride of 2^40 or more, a dim outside 1 .. 2^32, a box outside 1 .. 256, and box rows
/// whose bytes are no multiple of 16 or more than the swizzle's span.
EmulatedTensorMap encode_emulated_tensor_map(const TensorMapRequest& request);

}  // namespace attune
