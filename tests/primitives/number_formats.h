#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace attune::tests {

// The 16-bit storage formats by their definition, written out here so that the tests share nothing with what they
// check.
inline double decode(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}
inline double decode_f16(std::uint16_t bits) { return decode(bits, 5, 10); }
inline double decode_bf16(std::uint16_t bits) { return decode(bits, 8, 7); }

// The nearest number of the format, the even one of two, by its definition.
inline std::uint16_t encode(double x, int exponent_bits, int fraction_bits) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7fff;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  x = std::fabs(x);
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  if (x == 0) return sign;
  int exponent = std::max(std::ilogb(x), 1 - bias);
  const double units = std::nearbyint(std::ldexp(x, fraction_bits - exponent));  // half to even
  // A carry into the next binade adds one to the exponent field by itself.
  const long bits = (static_cast<long>(exponent + bias - 1) << fraction_bits) + static_cast<long>(units);
  return static_cast<std::uint16_t>(sign | std::min<long>(bits, infinity));
}
inline std::uint16_t encode_f16(double x) { return encode(x, 5, 10); }
inline std::uint16_t encode_bf16(double x) { return encode(x, 8, 7); }

}  // namespace attune::tests
