#pragma once

#include <cstdint>

namespace attune {

/// a - b of lengths and offsets; 0 where that is no int64, as of lengths that validate() refuses.
inline std::int64_t offset_difference(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? 0 : result;
}

}  // namespace attune
