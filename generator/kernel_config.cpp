#include "generator/kernel_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "generator/error.h"

namespace attune {
namespace {
constexpr std::string_view kKnownWords =
    "qN (queries of a CTA), kvN (keys of a step), wN (warps), stN (stages), qsmem (Q read from shared memory), "
    "order=rows|rows-reversed|heads|heads-reversed, rescaleN (threshold in powers of two), whole (lengths are "
    "multiples "
    "of the tiles), ctaN (CTAs per SM)";
constexpr TileOrder kTileOrders[] = {TileOrder::rows, TileOrder::rows_reversed, TileOrder::heads,
                                     TileOrder::heads_reversed};

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

// Digits only: a sign or a blank is not part of any word.
std::optional<int> parse_digits(std::string_view text) {
  int value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<TileOrder> parse_tile_order(std::string_view text) {
  const auto found = std::find_if(std::begin(kTileOrders), std::end(kTileOrders),
                                  [&](TileOrder order) { return to_string(order) == text; });
  if (found == std::end(kTileOrders)) return std::nullopt;
  return *found;
}
}  // namespace

std::string canonical_text(const KernelConfig& config) {
  const KernelConfig defaults;
  std::string text = fmt::format("{} q{} kv{} w{} st{}", to_string(config.family), config.block_q, config.block_kv,
                                 config.warps, config.stages);
  if (config.q_in_registers != defaults.q_in_registers) text += " qsmem";
  if (config.tile_order != defaults.tile_order) text += fmt::format(" order={}", to_string(config.tile_order));
  if (config.rescale_threshold != defaults.rescale_threshold)
    text += fmt::format(" rescale{}", config.rescale_threshold);
  if (config.whole_tiles != defaults.whole_tiles) text += " whole";
  if (config.ctas_per_sm != defaults.ctas_per_sm) text += fmt::format(" cta{}", config.ctas_per_sm);
  return text;
}

KernelConfig parse_config(std::string_view text) {
  KernelConfig config;
  struct NumberWord {
    std::string_view prefix;
    int* value;
  };
  const NumberWord number_words[] = {{"q", &config.block_q},
                                     {"kv", &config.block_kv},
                                     {"w", &config.warps},
                                     {"st", &config.stages},
                                     {"rescale", &config.rescale_threshold},
                                     {"cta", &config.ctas_per_sm}};
  std::set<std::string_view> seen;
  const auto once = [&](std::string_view field, std::string_view word) {
    if (!seen.insert(field).second) {
      invalid(fmt::format("config '{}': '{}' sets '{}' a second time; leave one of the two words", text, word, field));
    }
  };

  constexpr std::string_view kSpace = " \t\r\n";
  bool first = true;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = text.find_first_not_of(kSpace, end);
    if (first) {
      if (word != to_string(KernelFamily::sm80)) {
        invalid(
            fmt::format("config '{}': begins with '{}' instead of a kernel family; known families: sm80", text, word));
      }
      first = false;
      continue;
    }
    if (word == "qsmem") {
      once("qsmem", word);
      config.q_in_registers = false;
      continue;
    }
    if (word == "whole") {
      once("whole", word);
      config.whole_tiles = true;
      continue;
    }
    if (word.starts_with("order=")) {
      once("order", word);
      const std::optional<TileOrder> order = parse_tile_order(word.substr(6));
      if (!order) {
        invalid(fmt::format("config '{}': '{}' is no tile order; known: rows, rows-reversed, heads, heads-reversed",
                            text, word));
      }
      config.tile_order = *order;
      continue;
    }
    const auto known = std::find_if(std::begin(number_words), std::end(number_words), [&](const NumberWord& candidate) {
      return word.starts_with(candidate.prefix) && parse_digits(word.substr(candidate.prefix.size()));
    });
    if (known == std::end(number_words)) {
      invalid(fmt::format("config '{}': does not understand '{}'; known words: {}", text, word, kKnownWords));
    }
    once(known->prefix, word);
    *known->value = *parse_digits(word.substr(known->prefix.size()));
  }
  if (first) invalid("an empty config text; write for example 'sm80 q128 kv64 w4 st2'");
  return config;
}

std::string_view to_string(KernelFamily) { return "sm80"; }

std::string_view to_string(TileOrder order) {
  switch (order) {
    case TileOrder::rows:
      return "rows";
    case TileOrder::rows_reversed:
      return "rows-reversed";
    case TileOrder::heads:
      return "heads";
    case TileOrder::heads_reversed:
      return "heads-reversed";
  }
  return "";
}

}  // namespace attune
