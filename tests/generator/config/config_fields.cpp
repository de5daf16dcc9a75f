// The table of config fields: complete, and what is derived from it.
#include "generator/config/config_fields.h"

#include <set>

#include "generator/families/kernel_family.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("every member of a config has a row, with the struct's default where rows agree", "[nogpu]") {
  // A new member does not compile here until it is counted, and does not pass until it has a row.
  [[maybe_unused]] const auto& [family, block_q, block_kv, warps, stages, q_in_registers, tile_order, l2_parts,
                                rescale_threshold, even_tiles, ctas_per_sm, key_parts, promotion_blocks, q_stages,
                                warpgroup_order, overlap, persistence, v_stages, pair_stages, copied_pairs,
                                visible_blocks, p_in_shared, cluster, ascending_keys, pack_gqa, emulated_exponentials,
                                producer_registers, split, kv_grad_per_query_head, query_parts, dq_first, dq, do_stages,
                                ds_stages, dq_columns, fused_convert, fused_dbias, polled_loads, dq_registers,
                                split_dkdv, p_in_ds, dk_first, dq_by, dq_adds, ticket_blocks, early_statistics] =
      KernelConfig();
  constexpr std::size_t kMembers = 45;
  std::set<std::string_view> keys;
  for (const ConfigField& field : config_fields()) {
    INFO(field.key);
    keys.insert(field.key);
    if (field.key != "q_in_registers") CHECK(field.get(KernelConfig()) == field.standard);
    CHECK_FALSE(field.title.empty());
    CHECK_FALSE(field.help.empty());
    CHECK_FALSE(field.move.empty());
    CHECK(field.least < field.most);
  }
  CHECK(keys.size() == kMembers);
}

TEST_CASE("the rows of one member have disjoint families, and words are told apart", "[nogpu]") {
  for (const ConfigField& a : config_fields()) {
    for (const ConfigField& b : config_fields()) {
      if (&a == &b) continue;
      INFO(a.word << ", " << b.word);
      if (a.key == b.key) CHECK((a.families & b.families) == 0);
      CHECK(a.word != b.word);
    }
  }
}

TEST_CASE("a field's values are read back from the config's text, and others are refused", "[nogpu]") {
  for (const KernelFamily& family : kernel_families()) {
    for (const ConfigField& field : config_fields()) {
      if ((field.families & family.set) == 0) continue;
      for (int value = field.least; value <= field.most; value += field.step) {
        KernelConfig config = default_fields(family.word);
        field.set(config, value);
        REQUIRE(field.get(config) == value);
        INFO(canonical_text(config));
        REQUIRE(parse_config(canonical_text(config)) == config);
        std::vector<std::string> reasons;
        check_well_formed(config, family.set, &reasons);
        REQUIRE(reasons.empty());
      }
      if (field.form != FieldForm::number) continue;
      KernelConfig beyond = default_fields(family.word);
      field.set(beyond, field.most + field.step);
      std::vector<std::string> reasons;
      check_well_formed(beyond, family.set, &reasons);
      REQUIRE(reasons.size() == 1);
      REQUIRE_THAT(reasons.front(), ContainsSubstring(field.text(beyond) + ": must be"));
    }
  }
}

TEST_CASE("a family refuses the choices of others", "[nogpu]") {
  for (const KernelFamily& family : kernel_families()) {
    for (const ConfigField& field : config_fields()) {
      if ((field.families & families_of(family.word)) == 0) continue;
      KernelConfig config = default_fields(family.word);
      field.set(config, field.standard == field.least ? field.most : field.least);
      std::vector<std::string> reasons;
      check_foreign_fields(config, family.set, family.name, &reasons);
      INFO(family.name << ": " << canonical_text(config));
      CHECK(reasons.empty() == ((field.families & family.set) != 0));
    }
  }
}
