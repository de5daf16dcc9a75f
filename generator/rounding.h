#pragma once

#include <concepts>
#include <type_traits>

namespace attune {

/// ceil(value / divisor) of integers; value >= 0, divisor > 0, and their sum fits the type.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A value, B divisor) {
  using T = std::common_type_t<A, B>;
  return (static_cast<T>(value) + static_cast<T>(divisor) - 1) / static_cast<T>(divisor);
}

/// The least multiple of `multiple` that is not below value; as ceil_div().
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> round_up(A value, B multiple) {
  return ceil_div(value, multiple) * static_cast<std::common_type_t<A, B>>(multiple);
}

}  // namespace attune
