#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "generator/problem/element_type.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

// The biased exponent of infinities and NaN.
int infinite_exponent(const ElementFacts& format) { return 2 * format.exponent_bias + 1; }

}  // namespace

// Placed into the fields of a double the bits name the same number but for a power of two, subnormal ones too: the
// product with that power is exact.
double to_double(DataType dtype, std::uint16_t bits) {
  const ElementFacts& format = facts_of(dtype);
  constexpr int kMantissaBits = 52, kExponentBias = 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & 0x7fff;
  if (magnitude >> format.mantissa_bits == infinite_exponent(format)) {
    const bool is_nan = (magnitude & ((1 << format.mantissa_bits) - 1)) != 0;
    return is_nan ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const double scaled =
      std::bit_cast<double>(static_cast<std::uint64_t>(magnitude) << (kMantissaBits - format.mantissa_bits));
  const auto power = static_cast<std::uint64_t>(2 * kExponentBias - format.exponent_bias) << kMantissaBits;
  return sign * scaled * std::bit_cast<double>(power);
}

std::uint16_t from_double(DataType dtype, double value) {
  const ElementFacts& format = facts_of(dtype);
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<std::uint16_t>(infinite_exponent(format) << format.mantissa_bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (1 << (format.mantissa_bits - 1)));
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  // In units of the last place the value is an integer and a rest; below the smallest normal number the unit stays the
  // same.
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - format.exponent_bias) exponent = 1 - format.exponent_bias;
  const double units = std::ldexp(magnitude, format.mantissa_bits - exponent);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0)) whole += 1;
  // The hidden bit of a normal number, and a carry out of the mantissa, add to the exponent field by themselves.
  const double bits = whole + std::ldexp(exponent + format.exponent_bias - 1, format.mantissa_bits);
  return bits >= infinity ? sign | infinity : static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(bits));
}

}  // namespace attune
