#include "generator/config/kernel_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "generator/error.h"

namespace attune {
namespace {
constexpr std::string_view kCommonWords =
    "qN (queries of a tile), kvN (keys of a step), stN (stages), "
    "order=rows|rows-reversed|heads|heads-reversed|sections|sections-reversed, l2partsN (K and V of a section fill 1/N "
    "of "
    "L2), "
    "rescaleN (threshold in powers of two), whole (lengths are multiples of the tiles), ctaN (CTAs per SM); of "
    "backward "
    "dq=own|atomic|ordered (dQ by a kernel of its own, by adds as they come, by adds in turns)";
constexpr std::string_view kSm80Words =
    "wN (warps), qsmem (Q read from shared memory); of backward splitN (warps that share keys), apart (query "
    "heads of a group have tiles of keys of their own), dq-first (dQ's product before those of dK and dV)";
constexpr std::string_view kSm90Words =
    "qreg (Q in registers), qstN (stages of Q), nomax (no row maximum in unmasked blocks), free (warpgroups issue "
    "products as they come), "
    "turns (in turns), pingpong (one warpgroup at a time has the tensor cores), overlap=none|within|across, "
    "persist=none|fixed|on-demand, vstN (stages of V), psmem (P through shared memory), clusterN (CTAs that share K "
    "and V), packed (heads of a group in one tile), expN (exponentials of 16 by a polynomial), pregN (registers of the "
    "producer)";
constexpr KernelFamily kFamilies[] = {KernelFamily::sm80, KernelFamily::sm90};
constexpr QueryGradient kQueryGradients[] = {QueryGradient::own, QueryGradient::atomic, QueryGradient::ordered};
constexpr TileOrder kTileOrders[] = {TileOrder::rows,           TileOrder::rows_reversed, TileOrder::heads,
                                     TileOrder::heads_reversed, TileOrder::sections,      TileOrder::sections_reversed};
constexpr WarpgroupOrder kWarpgroupOrders[] = {WarpgroupOrder::free, WarpgroupOrder::turns, WarpgroupOrder::ping_pong};
constexpr Overlap kOverlaps[] = {Overlap::none, Overlap::within, Overlap::across};
constexpr Persistence kPersistences[] = {Persistence::none, Persistence::fixed, Persistence::on_demand};

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

// Digits only: a sign or a blank is not part of any word.
std::optional<int> parse_digits(std::string_view text) {
  int value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The value of a list whose name is `text`.
template <typename Value, std::size_t kCount>
std::optional<Value> named(const Value (&values)[kCount], std::string_view text) {
  const auto found =
      std::find_if(std::begin(values), std::end(values), [&](Value value) { return to_string(value) == text; });
  if (found == std::end(values)) return std::nullopt;
  return *found;
}

template <typename Value, std::size_t kCount>
std::string names_of(const Value (&values)[kCount]) {
  std::string names;
  for (const Value value : values) names += (names.empty() ? "" : ", ") + std::string(to_string(value));
  return names;
}
}  // namespace

int cta_threads(const KernelConfig& config) {
  constexpr int kWarp = 32, kWarpgroup = 128, kWarpgroupRows = 64;
  return config.family == KernelFamily::sm80 ? kWarp * config.warps
                                             : kWarpgroup * (config.block_q / kWarpgroupRows + 1);
}

KernelConfig default_fields(KernelFamily family) {
  KernelConfig config;
  config.family = family;
  if (family == KernelFamily::sm90) config.q_in_registers = false;
  return config;
}

std::string canonical_text(const KernelConfig& config) {
  const KernelConfig defaults = default_fields(config.family);
  const bool sm80 = config.family == KernelFamily::sm80;
  std::string text = fmt::format("{} q{} kv{}", to_string(config.family), config.block_q, config.block_kv);
  if (sm80) text += fmt::format(" w{}", config.warps);
  text += fmt::format(" st{}", config.stages);
  if (config.q_in_registers != defaults.q_in_registers) text += sm80 ? " qsmem" : " qreg";
  if (config.tile_order != defaults.tile_order) text += fmt::format(" order={}", to_string(config.tile_order));
  if (config.l2_parts != defaults.l2_parts) text += fmt::format(" l2parts{}", config.l2_parts);
  if (config.rescale_threshold != defaults.rescale_threshold)
    text += fmt::format(" rescale{}", config.rescale_threshold);
  if (config.whole_tiles != defaults.whole_tiles) text += " whole";
  if (config.ctas_per_sm != defaults.ctas_per_sm) text += fmt::format(" cta{}", config.ctas_per_sm);
  if (config.q_stages != defaults.q_stages) text += fmt::format(" qst{}", config.q_stages);
  if (config.without_maximum != defaults.without_maximum) text += " nomax";
  if (config.warpgroup_order != defaults.warpgroup_order) text += fmt::format(" {}", to_string(config.warpgroup_order));
  if (config.overlap != defaults.overlap) text += fmt::format(" overlap={}", to_string(config.overlap));
  if (config.persistence != defaults.persistence) text += fmt::format(" persist={}", to_string(config.persistence));
  if (config.v_stages != defaults.v_stages) text += fmt::format(" vst{}", config.v_stages);
  if (config.p_in_shared != defaults.p_in_shared) text += " psmem";
  if (config.cluster != defaults.cluster) text += fmt::format(" cluster{}", config.cluster);
  if (config.packed_heads != defaults.packed_heads) text += " packed";
  if (config.emulated_exponentials != defaults.emulated_exponentials)
    text += fmt::format(" exp{}", config.emulated_exponentials);
  if (config.producer_registers != defaults.producer_registers)
    text += fmt::format(" preg{}", config.producer_registers);
  if (config.split != defaults.split) text += fmt::format(" split{}", config.split);
  if (config.heads_apart != defaults.heads_apart) text += " apart";
  if (config.dq_first != defaults.dq_first) text += " dq-first";
  if (config.dq != defaults.dq) text += fmt::format(" dq={}", to_string(config.dq));
  return text;
}

KernelConfig parse_config(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpace, end);
  }
  if (words.empty()) invalid("an empty config text; write for example 'sm80 q128 kv64 w4 st2'");
  const std::optional<KernelFamily> family = named(kFamilies, words.front());
  if (!family) {
    invalid(fmt::format("config '{}': begins with '{}' instead of a kernel family; known families: {}", text,
                        words.front(), names_of(kFamilies)));
  }
  KernelConfig config = default_fields(*family);
  const bool sm80 = *family == KernelFamily::sm80;

  struct NumberWord {
    std::string_view prefix;
    int* value;
  };
  std::vector<NumberWord> number_words = {{"q", &config.block_q},
                                          {"kv", &config.block_kv},
                                          {"st", &config.stages},
                                          {"l2parts", &config.l2_parts},
                                          {"rescale", &config.rescale_threshold},
                                          {"cta", &config.ctas_per_sm}};
  struct FlagWord {
    std::string_view word;
    bool* value;
    bool sets;
  };
  std::vector<FlagWord> flag_words = {{"whole", &config.whole_tiles, true}};
  if (sm80) {
    number_words.push_back({"w", &config.warps});
    number_words.push_back({"split", &config.split});
    flag_words.push_back({"qsmem", &config.q_in_registers, false});
    flag_words.push_back({"apart", &config.heads_apart, true});
    flag_words.push_back({"dq-first", &config.dq_first, true});
  } else {
    number_words.push_back({"qst", &config.q_stages});
    flag_words.push_back({"qreg", &config.q_in_registers, true});
    flag_words.push_back({"nomax", &config.without_maximum, true});
    flag_words.push_back({"psmem", &config.p_in_shared, true});
    flag_words.push_back({"packed", &config.packed_heads, true});
    number_words.push_back({"vst", &config.v_stages});
    number_words.push_back({"cluster", &config.cluster});
    number_words.push_back({"exp", &config.emulated_exponentials});
    number_words.push_back({"preg", &config.producer_registers});
  }

  std::set<std::string_view> seen;
  const auto once = [&](std::string_view field, std::string_view word) {
    if (!seen.insert(field).second) {
      invalid(fmt::format("config '{}': '{}' sets '{}' a second time; leave one of the two words", text, word, field));
    }
  };
  // Whether the word is prefix=NAME; NAME must be one of the values.
  const auto takes_name = [&](std::string_view word, std::string_view field, const auto& values, auto* value,
                              std::string_view what) {
    if (!word.starts_with(field) || word.substr(field.size()).substr(0, 1) != "=") return false;
    once(field, word);
    const auto found = named(values, word.substr(field.size() + 1));
    if (!found) invalid(fmt::format("config '{}': '{}' is no {}; known: {}", text, word, what, names_of(values)));
    *value = *found;
    return true;
  };
  for (const std::string_view word : std::span(words).subspan(1)) {
    if (takes_name(word, "order", kTileOrders, &config.tile_order, "tile order")) continue;
    if (takes_name(word, "dq", kQueryGradients, &config.dq, "way to dQ")) continue;
    if (!sm80 && takes_name(word, "overlap", kOverlaps, &config.overlap, "overlap")) continue;
    if (!sm80 && takes_name(word, "persist", kPersistences, &config.persistence, "persistence")) continue;
    if (const auto order = sm80 ? std::nullopt : named(kWarpgroupOrders, word)) {
      once("order of warpgroups", word);
      config.warpgroup_order = *order;
      continue;
    }
    const auto flag = std::find_if(flag_words.begin(), flag_words.end(),
                                   [&](const FlagWord& candidate) { return word == candidate.word; });
    if (flag != flag_words.end()) {
      once(flag->word, word);
      *flag->value = flag->sets;
      continue;
    }
    const auto number = std::find_if(number_words.begin(), number_words.end(), [&](const NumberWord& candidate) {
      return word.starts_with(candidate.prefix) && parse_digits(word.substr(candidate.prefix.size()));
    });
    if (number == number_words.end()) {
      invalid(fmt::format("config '{}': does not understand '{}'; known words of {}: {}, {}", text, word,
                          to_string(*family), kCommonWords, sm80 ? kSm80Words : kSm90Words));
    }
    once(number->prefix, word);
    *number->value = *parse_digits(word.substr(number->prefix.size()));
  }
  return config;
}

std::string_view to_string(KernelFamily family) { return family == KernelFamily::sm80 ? "sm80" : "sm90"; }

std::string_view to_string(QueryGradient dq) {
  switch (dq) {
    case QueryGradient::own:
      return "own";
    case QueryGradient::atomic:
      return "atomic";
    case QueryGradient::ordered:
      return "ordered";
  }
  return "";
}

std::string_view to_string(WarpgroupOrder order) {
  switch (order) {
    case WarpgroupOrder::free:
      return "free";
    case WarpgroupOrder::turns:
      return "turns";
    case WarpgroupOrder::ping_pong:
      return "pingpong";
  }
  return "";
}

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::none:
      return "none";
    case Overlap::within:
      return "within";
    case Overlap::across:
      return "across";
  }
  return "";
}

std::string_view to_string(Persistence persistence) {
  switch (persistence) {
    case Persistence::none:
      return "none";
    case Persistence::fixed:
      return "fixed";
    case Persistence::on_demand:
      return "on-demand";
  }
  return "";
}

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
    case TileOrder::sections:
      return "sections";
    case TileOrder::sections_reversed:
      return "sections-reversed";
  }
  return "";
}

}  // namespace attune
