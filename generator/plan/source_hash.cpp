#include "generator/plan/source_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <optional>

#include "generator/text/source_tokens.h"

namespace attune {

std::string hash_of_text(std::string_view text) {
  return fmt::format("{:016x}", static_cast<std::uint64_t>(XXH3_64bits(text.data(), text.size())));
}

std::string hash_of_source(std::string_view source) {
  const std::optional<std::string> tokens = source_tokens(source);
  return hash_of_text(tokens ? std::string_view(*tokens) : source_body(source));
}

std::string_view source_body(std::string_view source) {
  if (!source.starts_with(kHeadMark)) return source;
  const std::size_t newline = source.find('\n');
  return newline == std::string_view::npos ? std::string_view() : source.substr(newline + 1);
}

}  // namespace attune
