#include "generator/config/config_fields.h"

#include <algorithm>
#include <type_traits>

#include "generator/families/backward_common/query_parts.h"
#include "generator/families/family_word.h"
#include "generator/families/long_rows.h"
#include "generator/plan/key_split.h"

namespace attune {
namespace {

template <auto kMember>
constexpr int get(const KernelConfig& config) {
  return static_cast<int>(config.*kMember);
}
template <auto kMember>
constexpr void set(KernelConfig& config, int value) {
  using Value = std::remove_cvref_t<decltype(config.*kMember)>;
  config.*kMember = static_cast<Value>(value);
}

// The name of a choice's value.
template <typename Enum>
constexpr std::string_view choice(int value) {
  return to_string(static_cast<Enum>(value));
}
template <typename Enum>
constexpr int last_of() {
  int last = 0;
  while (!choice<Enum>(last + 1).empty()) ++last;
  return last;
}

// What the two values of a flag are called.
struct FlagNames {
  std::string_view off, on;
};
constexpr FlagNames kQuery = {"shared memory", "registers"}, kLengths = {"any", "multiples of the tiles"},
                    kProbabilities = {"registers", "shared memory"}, kHeads = {"one", "those of a group"},
                    kWalk = {"from the last one", "from the first one"},
                    kRowSums = {"in the tensor cores", "of each block rounded"},
                    kKeyTiles = {"the heads that share them", "each query head"},
                    kFirst = {"after those of dK and dV", "before those of dK and dV"},
                    kHandOver = {"when dS has been handed over", "before dS is handed over"},
                    kKeyGradients = {"one warpgroup", "two warpgroups"},
                    kConversion = {"another kernel", "the tile that adds last"},
                    kBiasGradient = {"a kernel of its own", "the kernel of key tiles"},
                    kLoads = {"once a block", "when they are free"},
                    kProbabilityBuffer = {"a buffer of its own", "that of dS"},
                    kPairRows = {"as they lie", "copied to multiples of 16 bytes"},
                    kBlocks = {"all", "those that the attention mask shows pairs of"};
template <const FlagNames& kNames>
constexpr std::string_view flag(int value) {
  return value == 0 ? kNames.off : kNames.on;
}
constexpr std::string_view as_many(int value) { return value == 0 ? "as of K" : ""; }
constexpr std::string_view as_of_q(int value) { return value == 0 ? "as of Q" : ""; }
constexpr std::string_view fewest(int value) { return value == 0 ? "fewest" : ""; }
constexpr std::string_view none(int value) { return value == 0 ? "none" : ""; }
constexpr std::string_view never(int value) { return value == 0 ? "never" : ""; }
constexpr std::string_view parts_name(int value) {
  return value == kFillParts ? "fill" : value == kFixedParts ? "fixed" : "";
}

constexpr unsigned kForward = kForwardSm80 | kForwardSm90, kBackward = kBackwardSm80 | kBackwardSm90,
                   kMmaSync = kForwardSm80 | kBackwardSm80, kWgmma = kForwardSm90 | kBackwardSm90,
                   kAll = kForward | kBackward;
constexpr KernelConfig kStandard;

// One row of a field: its member, then what it is.
template <auto kMember>
constexpr ConfigField number(std::string_view word, std::string_view key, int least, int most, int step,
                             unsigned families, std::string_view title, std::string_view help, std::string_view move) {
  return {word,         key,          FieldForm::number,
          get<kMember>, set<kMember>, static_cast<int>(kStandard.*kMember),
          least,        most,         step,
          families,     title,        help,
          move};
}
template <auto kMember>
constexpr ConfigField flag_of(std::string_view word, std::string_view key, int standard, unsigned families,
                              std::string_view title, std::string_view help, std::string_view move,
                              std::string_view (*name)(int)) {
  return {word, key,      FieldForm::flag, get<kMember>, set<kMember>, standard, 0,     1,
          1,    families, title,           help,         move,         false,    false, name};
}
template <auto kMember>
constexpr ConfigField choice_of(std::string_view word, std::string_view key, FieldForm form, unsigned families,
                                std::string_view title, std::string_view help, std::string_view move) {
  using Enum = std::remove_cvref_t<decltype(kStandard.*kMember)>;
  return {word,
          key,
          form,
          get<kMember>,
          set<kMember>,
          static_cast<int>(kStandard.*kMember),
          0,
          last_of<Enum>(),
          1,
          families,
          title,
          help,
          move,
          false,
          false,
          choice<Enum>};
}
constexpr ConfigField always(ConfigField field) {
  field.always = true;
  return field;
}
constexpr ConfigField set_apart(ConfigField field) {
  field.sets_apart = true;
  return field;
}
// Where another value gives results other bits. Whether it may depends on what follows what: in doubt it does.
constexpr ConfigField bits(unsigned families, ConfigField field) {
  field.decides_bits = families & field.families;
  return field;
}
constexpr ConfigField named(ConfigField field, std::string_view (*name)(int)) {
  field.name = name;
  return field;
}

using C = KernelConfig;
constexpr FieldForm kChoice = FieldForm::choice, kName = FieldForm::name;

// clang-format off
constexpr ConfigField kFields[] = {
    bits(kBackward, set_apart(always(number<&C::block_q>("q", "block_q", 16, 1024, 16, kAll, "queries of a CTA (q)", "queries of a tile", "tile")))),
    bits(kAll, set_apart(always(number<&C::block_kv>("kv", "block_kv", 16, 384, 16, kAll, "keys of a step (kv)", "keys of a step", "tile")))),
    bits(kBackward, set_apart(always(number<&C::warps>("w", "warps", 1, 16, 1, kMmaSync, "warps (w)", "warps", "tile")))),
    set_apart(always(number<&C::stages>("st", "stages", 1, 4, 1, kAll, "stages (st)", "stages", "stages"))),
    flag_of<&C::q_in_registers>("qsmem", "q_in_registers", 1, kForwardSm80, "Q fragments in", "Q is read from shared memory", "query operand", flag<kQuery>),
    flag_of<&C::q_in_registers>("qreg", "q_in_registers", 0, kForwardSm90, "Q fragments in", "Q stays in registers", "query operand", flag<kQuery>),
    choice_of<&C::tile_order>("order", "tile_order", kChoice, kAll, "tile order", "which tiles follow each other", "order"),
    number<&C::l2_parts>("l2parts", "l2_parts", 1, kMostL2Parts, 1, kAll, "parts of L2, of which a section fills one (l2parts)", "what a section of heads keeps in L2 fills 1/N of it", "order"),
    bits(kForward, number<&C::rescale_threshold>("rescale", "rescale_threshold", 0, 10, 1, kForward, "rescale threshold, powers of two", "O is rescaled beyond this growth of the row maximum, in powers of two", "row maximum")),
    flag_of<&C::even_tiles>("even-tiles", "even_tiles", 0, kForward, "lengths", "lengths are multiples of the tiles", "bounds", flag<kLengths>),
    number<&C::ctas_per_sm>("cta", "ctas_per_sm", 1, 32, 1, kAll, "CTAs that must fit on an SM", "CTAs per SM", "occupancy"),
    named(number<&C::key_parts>("parts", "key_parts", kFixedParts, kMostKeyParts, 1, kForward, "parts of the keys (parts)", "parts of a tile's keys, whose results are combined; fill: as many as fill the GPU; fixed: of so many keys as invariant problems have them", "key parts"), parts_name),
    bits(kForward, flag_of<&C::promotion_blocks>("promoted", "promotion_blocks", 0, kForwardSm80, "sums over a row", "the tensor cores sum each block of keys from zero", "promotion", flag<kRowSums>)),
    bits(kForward, named(number<&C::promotion_blocks>("promote", "promotion_blocks", 1, kMostPromotionBlocks, 1, kForwardSm90, "blocks of keys between promotions (promote)", "sums over a row leave the tensor cores after every N blocks of keys", "promotion"), never)),
    number<&C::q_stages>("qst", "q_stages", 1, 2, 1, kForwardSm90, "stages of Q (qst)", "stages of Q", "tile scheduler"),
    choice_of<&C::warpgroup_order>("order of warpgroups", "warpgroup_order", kName, kWgmma, "order of warpgroups", "how warpgroups take the tensor cores: as they come, in a fixed order, one at a time", "warpgroups"),
    choice_of<&C::overlap>("overlap", "overlap", kChoice, kWgmma, "overlap", "what runs beside a warpgroup's products", "overlap"),
    set_apart(choice_of<&C::tile_scheduler>("scheduler", "tile_scheduler", kChoice, kWgmma, "tile scheduler", "how tiles are assigned to CTAs", "tile scheduler")),
    named(number<&C::v_stages>("vst", "v_stages", 1, 4, 1, kForwardSm90, "stages of V (vst)", "stages of V", "stages of V"), as_many),
    named(number<&C::pair_stages>("pst", "pair_stages", 1, 4, 1, kWgmma, "stages of bias and attention mask (pst)", "stages of a bias and an attention mask in shared memory", "stages of pairs"), none),
    flag_of<&C::copied_pairs>("copied-pairs", "copied_pairs", 0, kWgmma, "rows of bias and attention mask", "rows of a bias or an attention mask that 16 bytes do not divide are copied before", "rows of pairs", flag<kPairRows>),
    flag_of<&C::visible_blocks>("visible-blocks", "visible_blocks", 0, kWgmma, "blocks that are worked on", "blocks of which the attention mask shows no pair are passed over", "blocks", flag<kBlocks>),
    flag_of<&C::p_in_shared>("psmem", "p_in_shared", 0, kForwardSm90, "P through", "P goes through shared memory", "P", flag<kProbabilities>),
    bits(kBackward, number<&C::cluster>("cluster", "cluster", 1, 2, 1, kWgmma, "CTAs of a cluster", "CTAs that share K and V, backward that share dQ's sums", "cluster")),
    bits(kForward, flag_of<&C::ascending_keys>("ascending-keys", "ascending_keys", 0, kForwardSm90, "walk through the keys", "tiles begin with their first keys", "order", flag<kWalk>)),
    flag_of<&C::pack_gqa>("pack-gqa", "pack_gqa", 0, kForward, "heads of a tile", "heads of a group in one tile", "heads", flag<kHeads>),
    bits(kForward, number<&C::emulated_exponentials>("exp", "emulated_exponentials", 0, 8, 1, kForwardSm90, "exponentials by a polynomial, of 16", "exponentials of 16 by a polynomial", "exponentials")),
    named(number<&C::producer_registers>("preg", "producer_registers", 24, 56, 8, kForwardSm90, "registers of the producer", "registers of the producer", "producer"), fewest),
    bits(kBackward, number<&C::query_warps>("query-warps", "query_warps", 1, 16, 1, kBackwardSm80, "warps that share keys (query-warps)", "warps that share keys", "tile")),
    bits(kBackward, set_apart(flag_of<&C::kv_grad_per_query_head>("kv-grad-per-query-head", "kv_grad_per_query_head", 0, kBackward, "tiles of keys belong to", "query heads of a group have tiles of keys of their own", "key heads", flag<kKeyTiles>))),
    bits(kBackward, set_apart(number<&C::query_parts>("query-parts", "query_parts", 1, kMostQueryParts, 1, kBackward, "parts of the queries (query-parts)", "parts of a head's queries, which have tiles of keys of their own", "query parts"))),
    flag_of<&C::dq_first>("dq-first", "dq_first", 0, kBackwardSm80, "dQ's product", "dQ's product before those of dK and dV", "dQ's product", flag<kFirst>),
    bits(kBackward, set_apart(choice_of<&C::dq>("dq", "dq", kChoice, kBackward, "way to dQ", "dQ by a kernel of its own, by adds as they come, by adds in a fixed order", "dQ"))),
    named(number<&C::do_stages>("dost", "do_stages", 1, 4, 1, kBackwardSm90, "stages of dO (dost)", "stages of dO", "stages of dO"), as_of_q),
    number<&C::ds_stages>("dsst", "ds_stages", 1, 3, 1, kBackwardSm90, "stages of dS (dsst)", "stages of dS", "stages of dS"),
    set_apart(flag_of<&C::fused_convert>("fused-convert", "fused_convert", 0, kBackwardSm90, "dQ's sums converted by", "dQ of a head is converted by the tile that adds last", "dQ's sums", flag<kConversion>)),
    flag_of<&C::fused_dbias>("fused-dbias", "fused_dbias", 0, kBackwardSm90, "bias's gradient by", "dS is stored as the gradient of a bias that repeats along nothing", "bias's gradient", flag<kBiasGradient>),
    flag_of<&C::polled_loads>("polled-loads", "polled_loads", 0, kBackwardSm90, "buffers are filled anew", "loads are issued as soon as a buffer is seen to be free", "loads", flag<kLoads>),
    named(number<&C::dq_registers>("dqreg", "dq_registers", 40, 152, 8, kBackwardSm90, "registers of the warpgroup of dQ", "registers of the warpgroup of dQ", "dQ's product"), fewest),
    bits(kBackward, set_apart(flag_of<&C::split_dkdv>("split-dkdv", "split_dkdv", 0, kBackwardSm90, "dK and dV of a key by", "two warpgroups share keys: one computes dV, one dK", "dkdv", flag<kKeyGradients>))),
    flag_of<&C::p_in_ds>("p-in-ds", "p_in_ds", 0, kBackwardSm90, "P passes through", "P passes through the buffer that dS takes", "dkdv", flag<kProbabilityBuffer>),
    flag_of<&C::dk_first>("dk-first", "dk_first", 0, kBackwardSm90, "dK's product is issued", "dK's product is issued before dS is handed over", "dkdv", flag<kHandOver>),
    bits(kBackward, number<&C::dq_columns>("dqcols", "dq_columns", 64, 256, 64, kBackwardSm90, "columns of a product for dQ (dqcols)", "columns of a product for dQ", "dQ's product")),
    bits(kBackward, set_apart(choice_of<&C::dq_by>("dq-by", "dq_by", kChoice, kBackwardSm90, "warpgroups that compute dQ (dq-by)", "which warpgroups compute dQ: one of its own, or those of the softmax", "dQ's product"))),
    bits(kBackward, choice_of<&C::dq_adds>("dq-adds", "dq_adds", kChoice, kBackwardSm90, "adds of dQ (dq-adds)", "how dQ is added: by threads from registers, or by bulk reductions from shared memory", "dQ's product")),
    number<&C::ticket_blocks>("ticket", "ticket_blocks", 1, 4, 1, kBackwardSm90, "blocks of queries that share a ticket (ticket)", "blocks of queries that a tile of keys adds to before the next tile may", "dQ"),
    named(number<&C::early_statistics>("early", "early_statistics", 0, 16, 1, kBackwardSm90, "16 queries' LSE or delta that are read early (early)", "16 queries' LSE or delta that are read while the products run that they meet", "LSE and delta"), none),
};
// clang-format on

// Words of earlier versions that are spelled otherwise now, or that another replaces; one that ends with N is followed
// by a number.
struct OldWord {
  std::string_view old, now;
};
constexpr OldWord kOldWords[] = {
    {"order=rows", "order=head-major"},
    {"order=rows-reversed", "order=head-major-reversed"},
    {"order=heads", "order=tile-major"},
    {"order=heads-reversed", "order=tile-major-reversed"},
    {"order=sections", "order=l2-sections"},
    {"order=sections-reversed", "order=l2-sections-reversed"},
    {"whole", "even-tiles"},
    {"nomax", "rescale8"},
    {"lazy-max", "rescale8"},
    {"turns", "ordered"},
    {"persist=none", "scheduler=single"},
    {"persist=fixed", "scheduler=static-persistent"},
    {"persist=on-demand", "scheduler=dynamic-persistent"},
    {"packed", "pack-gqa"},
    {"splitN", "query-warpsN"},
    {"apart", "kv-grad-per-query-head"},
    {"dq=own", "dq=separate-kernel"},
};

constexpr std::string_view kDigits = "0123456789";

}  // namespace

std::span<const ConfigField> config_fields() { return kFields; }

std::string current_word(std::string_view word) {
  for (auto [old, now] : kOldWords) {
    if (old == word) return std::string(now);
    if (!old.ends_with('N')) continue;
    old.remove_suffix(1);
    now.remove_suffix(1);
    const std::string_view number = word.substr(std::min(word.size(), old.size()));
    if (word.starts_with(old) && !number.empty() && number.find_first_not_of(kDigits) == std::string_view::npos)
      return std::string(now).append(number);
  }
  return std::string(word);
}

}  // namespace attune
