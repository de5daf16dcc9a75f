#include "runtime/system/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace attune {
namespace {

struct Decoded {
  std::uint32_t code_point = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

// The first code point of a text that is not empty. Overlong forms, surrogates and what lies beyond U+10FFFF are none
// (RFC 3629).
Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code_point = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = code_point << 6 | (byte(i) & 0x3fu);
  }
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kLeast[bytes] || code_point > 0x10ffff || surrogate) return {};
  return {code_point, bytes};
}

bool is_obeyed(std::uint32_t c) {
  const auto within = [c](std::uint32_t first, std::uint32_t last) { return c >= first && c <= last; };
  return (c < 0x20 && c != '\n' && c != '\t') || within(0x7f, 0x9f) || c == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x2069) || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Decoded first = decode(text);
    const std::size_t bytes = first.bytes == 0 ? 1 : first.bytes;
    if (first.bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[0]));
    } else if (is_obeyed(first.code_point)) {
      result += first.code_point < 0x20 ? fmt::format("\\x{:02x}", first.code_point)
                                        : fmt::format("\\u{:04x}", first.code_point);
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string printable_line(std::string_view text) {
  std::string line;
  for (const char c : printable(text)) {
    if (c == '\n' || c == '\t') {
      line += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(c));
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace attune
