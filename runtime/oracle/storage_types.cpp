#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

// The bits of a 16-bit floating-point format.
struct Format {
  int mantissa_bits;
  int exponent_bias;
  int infinite_exponent;  // biased exponent of infinities and NaN
};
constexpr Format kHalf{10, 15, 31};
constexpr Format kBrain{7, 127, 255};

const Format& format_of(DataType dtype) { return dtype == DataType::fp16 ? kHalf : kBrain; }

}  // namespace

// Placed into the fields of a double the bits name the same number but for a power of two, subnormal ones too: the
// product with that power is exact.
double to_double(DataType dtype, std::uint16_t bits) {
  const Format& format = format_of(dtype);
  constexpr int kMantissaBits = 52, kExponentBias = 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & 0x7fff;
  if (magnitude >> format.mantissa_bits == format.infinite_exponent) {
    const bool is_nan = (magnitude & ((1 << format.mantissa_bits) - 1)) != 0;
    return is_nan ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const double scaled =
      std::bit_cast<double>(static_cast<std::uint64_t>(magnitude) << (kMantissaBits - format.mantissa_bits));
  const auto power = static_cast<std::uint64_t>(2 * kExponentBias - format.exponent_bias) << kMantissaBits;
  return sign * scaled * std::bit_cast<double>(power);
}

std::uint16_t from_double(DataType dtype, double value) {
  const Format& format = format_of(dtype);
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<std::uint16_t>(format.infinite_exponent << format.mantissa_bits);
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
