#include "generator/config/kernel_config.h"

#include "generator/error.h"
#include "generator/families/family_word.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

namespace {
void check_parse_error(const std::string& text, const std::string& expected) {
  INFO(text);
  try {
    parse_config(text);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK_THAT(error.what(), ContainsSubstring(expected));
  }
}
}  // namespace

TEST_CASE("canonical text of a config", "[nogpu]") {
  KernelConfig config;
  CHECK(canonical_text(config) == "sm80 q128 kv64 w4 st2");
  config.q_in_registers = false;
  config.tile_order = TileOrder::tile_major_reversed;
  config.rescale_threshold = 8;
  config.even_tiles = true;
  config.ctas_per_sm = 2;
  config.query_warps = 2;
  config.kv_grad_per_query_head = true;
  config.dq_first = true;
  config.dq = DqAccumulation::atomic;
  CHECK(canonical_text(config) ==
        "sm80 q128 kv64 w4 st2 qsmem order=tile-major-reversed rescale8 even-tiles cta2 query-warps2 "
        "kv-grad-per-query-head dq-first dq=atomic");
}

TEST_CASE("canonical text of an sm90 config", "[nogpu]") {
  KernelConfig config = default_fields(FamilyWord::sm90);
  config.block_q = 192;
  CHECK(canonical_text(config) == "sm90 q192 kv64 st2");
  config.q_in_registers = true;
  config.tile_order = TileOrder::tile_major_reversed;
  config.rescale_threshold = 8;
  config.even_tiles = true;
  config.ctas_per_sm = 2;
  config.q_stages = 2;
  config.warpgroup_order = WarpgroupOrder::ordered;
  config.overlap = Overlap::within;
  config.tile_scheduler = TileScheduler::dynamic_persistent;
  config.l2_parts = 4;
  config.v_stages = 3;
  config.p_in_shared = true;
  config.cluster = 2;
  config.ascending_keys = true;
  config.pack_gqa = true;
  config.emulated_exponentials = 4;
  config.producer_registers = 40;
  CHECK(canonical_text(config) ==
        "sm90 q192 kv64 st2 qreg order=tile-major-reversed l2parts4 rescale8 even-tiles cta2 qst2 ordered "
        "overlap=within scheduler=dynamic-persistent vst3 psmem cluster2 ascending-keys pack-gqa exp4 preg40");
}

TEST_CASE("a config's text round-trips, in any order of words after the family", "[nogpu]") {
  RandomValues random(3);
  for (int i = 0; i < 2000; ++i) {
    const KernelConfig config = random.config();
    const std::string text = canonical_text(config);
    INFO(text);
    REQUIRE(parse_config(text) == config);
    REQUIRE(parse_config(random.shuffled_words(text, 1)) == config);
  }
}

TEST_CASE("omitted words of a config have their default", "[nogpu]") {
  CHECK(parse_config("sm80") == KernelConfig());
  CHECK(parse_config(" sm80  kv32 order=head-major rescale0 cta1").block_kv == 32);
  CHECK(parse_config("sm90 overlap=none scheduler=single qst1") == default_fields(FamilyWord::sm90));
}

TEST_CASE("words of earlier versions are understood, and written as those that replace them", "[nogpu]") {
  const auto respelled = [](const char* text) { return canonical_text(parse_config(text)); };
  CHECK(respelled("sm80 q128 kv64 w4 st2 order=heads-reversed rescale8 whole split2 apart dq=own") ==
        "sm80 q128 kv64 w4 st2 order=tile-major-reversed rescale8 even-tiles query-warps2 kv-grad-per-query-head");
  CHECK(respelled("sm80 order=rows") == "sm80 q128 kv64 w4 st2");
  CHECK(respelled("sm80 order=rows-reversed") == "sm80 q128 kv64 w4 st2 order=head-major-reversed");
  CHECK(respelled("sm80 order=heads") == "sm80 q128 kv64 w4 st2 order=tile-major");
  CHECK(respelled("sm80 order=sections") == "sm80 q128 kv64 w4 st2 order=l2-sections");
  CHECK(respelled("sm90 order=sections-reversed nomax turns persist=fixed packed") ==
        "sm90 q128 kv64 st2 order=l2-sections-reversed rescale8 ordered scheduler=static-persistent pack-gqa");
  CHECK(respelled("sm90 lazy-max exp4") == "sm90 q128 kv64 st2 rescale8 exp4");
  CHECK(respelled("sm90 persist=on-demand") == "sm90 q128 kv64 st2 scheduler=dynamic-persistent");
  CHECK(respelled("sm90 persist=none") == "sm90 q128 kv64 st2");
  check_parse_error("sm80 split", "does not understand 'split'");
  check_parse_error("sm80 splitN", "does not understand 'splitN'");
  check_parse_error("sm90 turns ordered", "'ordered' sets 'order of warpgroups' a second time");
  check_parse_error("sm90 persist=all", "does not understand 'persist=all'");
}

TEST_CASE("what a config's text may not say", "[nogpu]") {
  check_parse_error("", "empty");
  check_parse_error("q128 kv64", "begins with 'q128'");
  check_parse_error("sm70 q128", "known families: sm80, sm90");
  check_parse_error("sm80 q128 qst2", "does not understand 'qst2'");
  check_parse_error("sm80 ordered", "known words of sm80");
  check_parse_error("sm90 w4", "known words of sm90");
  check_parse_error("sm90 qsmem", "'qsmem'");
  check_parse_error("sm90 overlap=all", "'overlap=all' is no overlap; known: none, within, across");
  check_parse_error("sm90 scheduler=", "is no tile scheduler; known: single, static-persistent, dynamic-persistent");
  check_parse_error("sm90 ordered ordered", "a second time");
  check_parse_error("sm90 ordered pingpong", "'pingpong' sets 'order of warpgroups' a second time");
  check_parse_error("sm80 sm80", "'sm80'");
  check_parse_error("sm80 x9", "does not understand 'x9'");
  check_parse_error("sm80 x9", "qsmem");
  check_parse_error("sm80 q", "'q'");
  check_parse_error("sm80 q-128", "'q-128'");
  check_parse_error("sm80 q128k", "'q128k'");
  check_parse_error("sm80 q99999999999", "'q99999999999'");
  check_parse_error("sm80 kv", "'kv'");
  check_parse_error("sm80 order=diagonal", "'order=diagonal' is no tile order");
  check_parse_error("sm80 order=", "is no tile order");
  check_parse_error("sm80 q64 q128", "a second time");
  check_parse_error("sm80 even-tiles even-tiles", "a second time");
  check_parse_error("sm80 dq=sorted", "'dq=sorted' is no way to dQ; known: separate-kernel, atomic, ordered");
  check_parse_error("sm80 dq=atomic dq=separate-kernel", "a second time");
  check_parse_error("sm90 query-warps2", "does not understand 'query-warps2'");
  check_parse_error("sm90 dq-first", "does not understand 'dq-first'");
  check_parse_error("sm80 kv-grad-per-query-head apart", "a second time");
  check_parse_error("sm90 dq-first", "does not understand 'dq-first'");
  check_parse_error("sm80 dq-first dq-first", "a second time");
  check_parse_error("sm80 dq-last", "does not understand 'dq-last'");
  check_parse_error("sm80 qsmem qsmem", "a second time");
  check_parse_error("sm80 order=head-major order=tile-major", "a second time");
}
