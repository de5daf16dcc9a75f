#include "tuner/database/utc_time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>

namespace attune {
namespace {

constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd";
constexpr std::size_t kFractionDigits = 6;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = microseconds / 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), microseconds % 1'000'000);
}

std::optional<std::string> canonical_time(std::string_view text) {
  if (text.size() <= kShape.size() || text.back() != 'Z') return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'd' ? !is_digit(text[i]) : text[i] != kShape[i]) return std::nullopt;
  }
  const auto number = [&](std::size_t from, std::size_t digits) {
    int value = 0;
    for (const char c : text.substr(from, digits)) value = 10 * value + (c - '0');
    return value;
  };
  const std::chrono::year_month_day day{std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  constexpr int kHours = 24, kSixty = 60;
  if (!day.ok() || number(11, 2) >= kHours || number(14, 2) >= kSixty || number(17, 2) >= kSixty) return std::nullopt;
  std::string_view fraction = text.substr(kShape.size(), text.size() - kShape.size() - 1);
  if (!fraction.empty()) {
    if (fraction.size() < 2 || fraction.front() != '.') return std::nullopt;
    fraction.remove_prefix(1);
    if (!std::all_of(fraction.begin(), fraction.end(), is_digit)) return std::nullopt;
  }
  return fmt::format("{}.{:0<{}}Z", text.substr(0, kShape.size()), fraction.substr(0, kFractionDigits),
                     kFractionDigits);
}

std::string time_order(std::string_view text) { return canonical_time(text).value_or(std::string(text)); }

}  // namespace attune
