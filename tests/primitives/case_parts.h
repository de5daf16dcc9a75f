#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/primitives/primitive_cases.h"
#include "tests/primitives/test_kernel.h"

namespace attune::tests {

using Bytes = std::vector<std::uint8_t>;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::string text_of(T x) {
  std::ostringstream text;
  text.precision(17);
  text << x;
  return text.str();
}

/// Complains of an output that is not `expected` bit for bit, but for NaN: any equals any other.
template <typename T>
std::function<std::string(const Bytes&)> exactly(std::vector<T> expected) {
  return [expected = std::move(expected)](const Bytes& output) -> std::string {
    const std::vector<T> actual = values_of<T>(output);
    if (actual.size() != expected.size()) return "the output has another size";
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
      }
      if (!same_bits(actual[i], expected[i])) {
        return "element " + std::to_string(i) + " is " + text_of(actual[i]) + " instead of " + text_of(expected[i]);
      }
    }
    return {};
  };
}

/// Complains of an output that is off by more than relative * |expected| + absolute, or by anything at special values.
template <typename T>
std::function<std::string(const Bytes&)> nearly(std::vector<T> expected, double relative, double absolute = 0) {
  return [=](const Bytes& output) -> std::string {
    const std::vector<T> actual = values_of<T>(output);
    if (actual.size() != expected.size()) return "the output has another size";
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double a = actual[i], e = expected[i];
      if (std::isnan(a) && std::isnan(e)) continue;
      const bool special = std::isnan(e) || std::isinf(e) || std::isnan(a) || std::isinf(a) || e == 0;
      if (special ? a != e : !(std::fabs(a - e) <= relative * std::fabs(e) + absolute)) {
        return "element " + std::to_string(i) + " is " + text_of(a) + " instead of " + text_of(e);
      }
    }
    return {};
  };
}

inline std::vector<std::uint16_t> random_words(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> words(count);
  for (auto& word : words) word = static_cast<std::uint16_t>(random());
  return words;
}

template <typename T>
Bytes concatenated(const std::vector<T>& first, const std::vector<T>& second) {
  std::vector<T> both = first;
  both.insert(both.end(), second.begin(), second.end());
  return bytes_of(both);
}

/// One value of the output for each element of the input, all by one expression.
template <typename In, typename Out>
PrimitiveCase elementwise(const std::string& name, const std::string& statement, const std::vector<In>& in,
                          std::size_t outputs, std::function<std::string(const Bytes&)> complaint) {
  return {name,
          {"for (u32 i = thread; i < " + std::to_string(outputs) + "; i += 128) {\n  " + statement + "\n}\n", 128},
          bytes_of(in),
          outputs * sizeof(Out),
          std::move(complaint)};
}

}  // namespace attune::tests
