#include "runtime/system/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "generator/error.h"

namespace attune {
namespace {

constexpr std::size_t kMostShown = 80;

// The head and the end of a long text.
std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  return text.substr(0, most * 3 / 4) + "..." + text.substr(text.size() - most / 4);
}

// A text in ASCII, without what a terminal would act on.
std::string as_ascii(std::string_view text) {
  // As a JSON string of ASCII, but that quotation marks and backslashes need no escape here.
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\"\\", at), text.size());
    if (end == at) {
      safe += text[at++];
      continue;
    }
    const std::string quoted =
        nlohmann::json(text.substr(at, end - at)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    safe.append(quoted, 1, quoted.size() - 2);
    at = end;
  }
  // DEL is no control character to JSON.
  for (std::size_t at = 0; (at = safe.find('\x7f', at)) != std::string::npos;) safe.replace(at, 1, "\\u007f");
  return safe;
}

// One step of a JSON pointer (RFC 6901).
std::string step(std::string_view name) {
  std::string escaped = "/";
  for (const char c : as_ascii(name)) escaped += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return shortened(std::move(escaped), kMostShown);
}

std::string at_pointer(const std::string& pointer) { return pointer.empty() ? "" : fmt::format(", at {}", pointer); }

// Over the text, telling how far the parser has read.
class Reading {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reading(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Reading& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Reading operator++(int) {
    Reading before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Reading& other) const { return at_ == other.at_; }
  bool operator!=(const Reading& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Makes the document of what the parser finds.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, std::string_view where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits), reached_(text.data()) {}

  Json parse() {
    const char* const end = text_.data() + text_.size();
    Json::sax_parse(Reading(text_.data(), &reached_), Reading(end, &reached_), this);
    return std::move(document_);
  }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(typename Json::binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    Level& level = levels_.back();
    level.name = name;
    if (!level.names.insert(name).second)
      refuse(reached_, fmt::format("it names '{}' twice", shortened(as_ascii(name), kMostShown)));
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    const char* const at = text_.data() + std::min(position, text_.size());
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow)
      refuse(at, fmt::format("{} is not a number that fits", shortened(as_ascii(token), kMostShown)));
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing ...": the place is
    // said better, and what was read may be all of the text.
    std::string what = error.what();
    for (const std::string_view before : {"] ", ": "}) {
      const std::size_t found = what.find(before);
      if (found != std::string::npos) what.erase(0, found + before.size());
    }
    constexpr std::size_t kMostSaid = 240;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is not JSON: {}: {}", where_, place(at), shortened(as_ascii(what), kMostSaid)));
  }

 private:
  // An array or object that is not closed yet.
  struct Level {
    Json* container;
    std::string name;                       // of an object: of the member that is being read
    std::unordered_set<std::string> names;  // of an object: those that were read
  };

  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (levels_.size() == limits_.depth)
      refuse(reached_, fmt::format("more than {} arrays and objects are nested in each other", limits_.depth));
    levels_.push_back({add(std::move(value)), {}, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  Json* add(Json value) {
    if (++values_ > limits_.values) refuse(reached_, fmt::format("it holds more than {} values", limits_.values));
    if (levels_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return &level.container->back();
    }
    auto& members = level.container->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      // Its own insertion looks through all members for the name, which key() has done already.
      members.emplace_back(level.name, std::move(value));
      return &members.back().second;
    } else {
      return &members.emplace(level.name, std::move(value)).first->second;
    }
  }

  // The pointer to the value that is being read.
  std::string pointer() const {
    std::string text;
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      const Level& level = levels_[i];
      const bool innermost = i + 1 == levels_.size();
      text += level.container->is_array() ? fmt::format("/{}", level.container->size() - (innermost ? 0 : 1))
              : level.name.empty() && level.names.empty() ? ""
                                                          : step(level.name);
    }
    return shortened(std::move(text), 4 * kMostShown);
  }

  std::string place(const char* at) const {
    const std::string_view before(text_.data(), static_cast<std::size_t>(at - text_.data()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
    return fmt::format("line {}, column {}{}", line, column, at_pointer(pointer()));
  }

  [[noreturn]] void refuse(const char* at, const std::string& complaint) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}, {}: {}", where_, place(at), complaint));
  }

  std::string_view text_, where_;
  JsonLimits limits_;
  const char* reached_;
  Json document_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
};

template <typename Json>
std::string text_of(const Json& value) {
  // A whole document may stand where a number should: what is shown is bounded before it is written.
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  if (value.is_string()) return fmt::format("\"{}\"", as_ascii(value.template get_ref<const std::string&>()));
  return value.dump();
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return Builder<nlohmann::json>(text, where, limits).parse();
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return Builder<nlohmann::ordered_json>(text, where, limits).parse();
}

std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string shown(const nlohmann::json& value) { return shortened(text_of(value), kMostShown); }
std::string shown(const nlohmann::ordered_json& value) { return shortened(text_of(value), kMostShown); }

template <typename Json>
void BasicJsonView<Json>::refuse(std::string_view complaint) const {
  throw Error(ErrorCode::invalid_argument, pointer_.empty() ? fmt::format("{}: {}", where_, complaint)
                                                            : fmt::format("{}: {}: {}", where_, pointer_, complaint));
}

template <typename Json>
bool BasicJsonView<Json>::has(std::string_view name) const {
  if (!value_->is_object()) refuse(fmt::format("{} is not an object", shown(*value_)));
  return value_->contains(name);
}

template <typename Json>
BasicJsonView<Json> BasicJsonView<Json>::at(std::string_view name) const {
  if (!has(name)) refuse(fmt::format("the field \"{}\" is missing", as_ascii(name)));
  return {*value_->find(name), where_, pointer_ + step(name)};
}

template <typename Json>
std::size_t BasicJsonView<Json>::size() const {
  if (!value_->is_array()) refuse(fmt::format("{} is not an array", shown(*value_)));
  return value_->size();
}

template <typename Json>
BasicJsonView<Json> BasicJsonView<Json>::at(std::size_t index) const {
  if (index >= size()) refuse(fmt::format("the element {} is missing", index));
  return {(*value_)[index], where_, fmt::format("{}/{}", pointer_, index)};
}

template <typename Json>
std::string BasicJsonView<Json>::text() const {
  if (!value_->is_string()) refuse(fmt::format("{} is not a text", shown(*value_)));
  return value_->template get<std::string>();
}

template <typename Json>
bool BasicJsonView<Json>::boolean() const {
  if (!value_->is_boolean()) refuse(fmt::format("{} is neither true nor false", shown(*value_)));
  return value_->template get<bool>();
}

template <typename Json>
double BasicJsonView<Json>::number() const {
  if (!value_->is_number() || !std::isfinite(value_->template get<double>()))
    refuse(fmt::format("{} is not a number", shown(*value_)));
  return value_->template get<double>();
}

template <typename Json>
std::int64_t BasicJsonView<Json>::signed_between(std::int64_t least, std::int64_t most) const {
  // A number without sign is stored as one without sign: it may be too large for one with.
  const bool fits = value_->is_number_unsigned() ? std::in_range<std::int64_t>(value_->template get<std::uint64_t>())
                                                 : value_->is_number_integer();
  const auto value = fits ? value_->template get<std::int64_t>() : 0;
  if (!fits || value < least || value > most)
    refuse(fmt::format("{} is not a whole number from {} to {}", shown(*value_), least, most));
  return value;
}

template <typename Json>
std::uint64_t BasicJsonView<Json>::unsigned_between(std::uint64_t least, std::uint64_t most) const {
  const bool fits = value_->is_number_unsigned();
  const auto value = fits ? value_->template get<std::uint64_t>() : 0;
  if (!fits || value < least || value > most)
    refuse(fmt::format("{} is not a whole number from {} to {}", shown(*value_), least, most));
  return value;
}

template class BasicJsonView<nlohmann::json>;
template class BasicJsonView<nlohmann::ordered_json>;

}  // namespace attune
