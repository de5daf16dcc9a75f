#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace attune {

/// What a text from outside may cost.
struct JsonLimits {
  std::size_t depth = 64;           ///< of arrays and objects in each other
  std::size_t values = 20'000'000;  ///< of all kinds together; each takes 16 bytes or more
};

/// The one way to read JSON that Attune did not make in this process. `where` names the text in messages: a file, or
/// "the worker's answer". Throws Error(invalid_argument) with line, column and JSON pointer for what is no JSON, a
/// number that a double cannot hold, a name that an object has twice, and what is beyond the limits. Never recurses:
/// hostile depth costs no stack.
nlohmann::json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});
/// The same; objects keep the text's order.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

/// A value as JSON in one line of ASCII, so that no terminal acts on it. Never throws for a text's bytes: what is not
/// UTF-8 becomes U+FFFD.
std::string json_line(const nlohmann::json& value);

/// A value in one line of ASCII for messages, without what a terminal would act on; long ones are shortened.
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);

/// A value that parse_json read and its place, so that each complaint names it: "peers.json: /rows/3/median_us: -1 is
/// not a positive number". Refers to the value, which must outlive it. All that is not as asked for is thrown as
/// Error(invalid_argument).
template <typename Json>
class BasicJsonView {
 public:
  BasicJsonView(const Json& value, std::string_view where, std::string pointer = {})
      : value_(&value), where_(where), pointer_(std::move(pointer)) {}

  const Json& json() const { return *value_; }
  const std::string& where() const { return where_; }
  const std::string& pointer() const { return pointer_; }  ///< "/rows/3", empty for the whole document

  [[noreturn]] void refuse(std::string_view complaint) const;

  /// Whether an object has the member; refuses anything but an object.
  bool has(std::string_view name) const;
  BasicJsonView at(std::string_view name) const;  ///< refuses an object without it
  /// The length of an array; refuses anything but an array.
  std::size_t size() const;
  BasicJsonView at(std::size_t index) const;  ///< `index` is below size()

  std::string text() const;
  bool boolean() const;
  double number() const;  ///< finite
  /// A number written without fraction or exponent, within these bounds.
  template <std::integral T>
  T whole(T least = std::numeric_limits<T>::min(), T most = std::numeric_limits<T>::max()) const {
    if constexpr (std::signed_integral<T>) {
      return static_cast<T>(signed_between(least, most));
    } else {
      return static_cast<T>(unsigned_between(least, most));
    }
  }

 private:
  std::int64_t signed_between(std::int64_t least, std::int64_t most) const;
  std::uint64_t unsigned_between(std::uint64_t least, std::uint64_t most) const;

  const Json* value_;
  std::string where_, pointer_;
};

using JsonView = BasicJsonView<nlohmann::json>;
using OrderedJsonView = BasicJsonView<nlohmann::ordered_json>;

}  // namespace attune
