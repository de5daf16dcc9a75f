#include "tuner/report/report_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tuner/report/roofline.h"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// What a reader calls the fields of a config, in the order of field_values().
struct ConfigField {
  const char* key;
  const char* title;
};
constexpr ConfigField kConfigFields[] = {
    {"family", "kernel family"},
    {"block_q", "queries of a CTA (q)"},
    {"block_kv", "keys of a step (kv)"},
    {"warps", "warps (w)"},
    {"stages", "stages (st)"},
    {"q_in_registers", "Q fragments in"},
    {"tile_order", "order of tiles"},
    {"l2_parts", "parts of L2, of which a section fills one (l2parts)"},
    {"rescale_threshold", "rescale threshold, powers of two"},
    {"whole_tiles", "lengths"},
    {"ctas_per_sm", "CTAs that must fit on an SM"},
    {"q_stages", "stages of Q (qst)"},
    {"without_maximum", "reference of unmasked blocks"},
    {"warpgroup_order", "order of warpgroups"},
    {"overlap", "overlap"},
    {"persistence", "persistence"},
    {"v_stages", "stages of V (vst)"},
    {"p_in_shared", "P through"},
    {"cluster", "CTAs of a cluster"},
    {"packed_heads", "heads of a tile"},
    {"emulated_exponentials", "exponentials by a polynomial, of 16"},
    {"producer_registers", "registers of the producer"},
    {"split", "warps that share keys (split)"},
    {"heads_apart", "tiles of keys belong to"},
    {"dq_first", "dQ's product"},
    {"dq", "dQ"},
};

Json field_values(const KernelConfig& config) {
  // A new field of a config does not compile here until the page knows it.
  const auto& [family, block_q, block_kv, warps, stages, q_in_registers, tile_order, l2_parts, rescale_threshold,
               whole_tiles, ctas_per_sm, q_stages, without_maximum, warpgroup_order, overlap, persistence, v_stages,
               p_in_shared, cluster, packed_heads, emulated_exponentials, producer_registers, split, heads_apart,
               dq_first, dq] = config;
  Json values = {to_string(family),
                 block_q,
                 block_kv,
                 warps,
                 stages,
                 q_in_registers ? "registers" : "shared memory",
                 to_string(tile_order),
                 l2_parts,
                 rescale_threshold,
                 whole_tiles ? "whole tiles" : "any",
                 ctas_per_sm,
                 q_stages,
                 without_maximum ? "kept" : "maximum",
                 to_string(warpgroup_order),
                 to_string(overlap),
                 to_string(persistence),
                 v_stages == 0 ? stages : v_stages,
                 p_in_shared ? "shared memory" : "registers",
                 cluster,
                 packed_heads ? "those of a group" : "one",
                 emulated_exponentials,
                 producer_registers == 0 ? Json("fewest") : Json(producer_registers),
                 split,
                 heads_apart ? "each query head" : "the heads that share them",
                 dq_first ? "before those of dK and dV" : "after those of dK and dV",
                 to_string(dq)};
  return values;
}

constexpr const char* kColumns[] = {
    "config",    "status",      "reason",       "rigor",        "race",      "place",      "median_us",  "p20_us",
    "p80_us",    "samples",     "predicted_us", "sm_clock_mhz", "clock_low", "clock_high", "error_o",    "error_lse",
    "registers", "spill_bytes", "shared_bytes", "compile_ms",   "bound_us",  "bound_by",   "provenance", "created_at"};

}  // namespace

std::size_t ReportProvenances::number_of(const Measurement& row) {
  const Key key(row.templates_hash, row.compiler, row.driver, row.protocol, row.attune_version);
  const auto [found, added] = numbers_.emplace(key, numbers_.size());
  if (added) {
    list_.push_back({{"templates_hash", row.templates_hash},
                     {"compiler", row.compiler},
                     {"driver", row.driver},
                     {"protocol", row.protocol},
                     {"attune_version", row.attune_version}});
  }
  return found->second;
}

std::size_t ReportConfigs::number_of(const KernelConfig& config) {
  const auto [found, added] = numbers_.emplace(canonical_text(config), numbers_.size());
  if (added) list_.push_back({{"text", found->first}, {"fields", field_values(config)}});
  return found->second;
}

Json report_columns() { return kColumns; }

Json report_config_fields() {
  Json fields = Json::array();
  for (const ConfigField& field : kConfigFields) fields.push_back({{"key", field.key}, {"title", field.title}});
  return fields;
}

Json report_row(const Measurement& row, const std::optional<DeviceSpec>& spec, ReportRowLists& lists) {
  std::vector<int> clocks;
  for (const int clock : row.clocks_mhz) {
    if (clock > 0) clocks.push_back(clock);
  }
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  Json bound_us = nullptr, bound_by = nullptr;
  if (spec) {
    const Roofline roofline = roofline_of(row.problem, row.config, *spec);
    bound_us = roofline.bound_us;
    bound_by = roofline.bound_by;
  }
  Json values = {lists.configs.number_of(row.config),
                 to_string(row.status),
                 row.reason,
                 to_string(row.rigor),
                 row.race,
                 row.place,
                 number(row.median_us),
                 number(row.p20_us),
                 number(row.p80_us),
                 row.samples_us.size(),
                 number(row.predicted_us),
                 row.sm_clock_mhz,
                 clocks.empty() ? 0 : *low,
                 clocks.empty() ? 0 : *high,
                 number(row.error_o),
                 number(row.error_lse),
                 row.registers,
                 row.spill_bytes,
                 row.shared_bytes,
                 number(row.compile_ms),
                 bound_us,
                 bound_by,
                 lists.provenances.number_of(row),
                 row.created_at};
  return values;
}

}  // namespace attune
