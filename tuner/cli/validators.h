#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

namespace attune::cli {

/// Refuses an empty text: `--config "$UNSET"` is a mistake, not an omission.
inline CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return text.empty() ? "must not be empty" : ""; }, "");
}

/// For transform(): a decimal number that fits T. CLI11 alone would take -1 as 2^64 - 1, 99999999999999999999 as 2^63 -
/// 1 and 010 as 8.
template <typename T>
CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        T value{};
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc::result_out_of_range) return text + " is too large a number";
        if (error != std::errc{} || stop != end)
          return text + " is not a whole number" + (std::is_signed_v<T> ? "" : " of at least 0");
        text = std::to_string(value);
        return "";
      },
      "");
}

}  // namespace attune::cli
