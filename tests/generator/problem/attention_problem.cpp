#include "generator/problem/attention_problem.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <unordered_set>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

namespace {
AttentionProblem valid_problem() { return make_problem(DataType::bf16, 2, 8, 512, 64, MaskKind::causal); }

template <typename Change>
std::string complaint_about(Change change) {
  AttentionProblem problem = valid_problem();
  change(problem);
  try {
    validate(problem);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

void check_parse_error(const std::string& text, const std::string& expected) {
  INFO(text);
  try {
    parse_problem(text);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK_THAT(error.what(), ContainsSubstring(expected));
  }
}
}  // namespace

TEST_CASE("canonical text of a problem", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 128, MaskKind::causal);
  CHECK(canonical_text(problem) == "forward bf16 b4 hq16 sq4096 d128 causal");
  problem.heads_kv = 4;
  problem.seq_kv = 5000;
  CHECK(canonical_text(problem) == "forward bf16 b4 hq16 hkv4 sq4096 skv5000 d128 causal-top-left");
  problem.mask_offset = 904;
  CHECK(canonical_text(problem) == "forward bf16 b4 hq16 hkv4 sq4096 skv5000 d128 causal");
  problem.mask_offset = -7;
  problem.softmax_scale = 0.1f;
  problem.layout = Layout::bhsd;
  problem.alignment = 2;
  problem.dtype = DataType::fp16;
  CHECK(canonical_text(problem) == "forward fp16 b4 hq16 hkv4 sq4096 skv5000 d128 causal@-7 scale0.1 bhsd align2");
}

TEST_CASE("a problem's text round-trips, in any order of words", "[nogpu]") {
  RandomValues random(1);
  for (int i = 0; i < 2000; ++i) {
    const AttentionProblem asked = random.problem(), problem = simplest_mask(asked);
    const std::string text = canonical_text(problem);
    INFO(text);
    REQUIRE(parse_problem(text) == problem);
    REQUIRE(parse_problem(random.shuffled_words(text)) == problem);
    REQUIRE(canonical_text(asked) == text);
    REQUIRE_NOTHROW(validate(problem));
  }
}

TEST_CASE("the simplest mask hides the same pairs, and problems that ask the same are one", "[nogpu]") {
  RandomValues random(3);
  std::map<std::string, AttentionProblem> by_pairs;
  int simpler = 0;
  for (int i = 0; i < 20000; ++i) {
    AttentionProblem problem;
    problem.seq_q = random.between(1, 4);
    problem.seq_kv = random.between(1, 4);
    problem.mask = static_cast<MaskKind>(random.between(0, 2));
    if (problem.mask != MaskKind::none) problem.mask_offset = random.between(-5, 5);
    if (problem.mask == MaskKind::window) {
      problem.first_offset = random.between(-6, problem.mask_offset);
      if (random.between(0, 3) == 0) problem.mask_offset = kOpenDiagonal;
    }
    const AttentionProblem simple = simplest_mask(problem);
    simpler += simple.mask < problem.mask;
    REQUIRE_NOTHROW(validate(simple));
    REQUIRE(simplest_mask(simple) == simple);
    // What it hides, as a picture.
    std::string pairs = fmt::format("{} {} ", problem.seq_q, problem.seq_kv);
    bool any = false;
    for (std::int64_t query = 0; query < problem.seq_q; ++query) {
      const RowRange keys = MaskGeometry(problem).keys_of_query(query);
      const RowRange simple_keys = MaskGeometry(simple).keys_of_query(query);
      for (std::int64_t key = 0; key < problem.seq_kv; ++key) {
        INFO(canonical_text(simple) << ", query " << query << ", key " << key);
        REQUIRE(keys.contains(key) == simple_keys.contains(key));
        pairs += keys.contains(key) ? 'x' : '.';
        any = any || keys.contains(key);
      }
    }
    REQUIRE((simple.mask == MaskKind::none) == (pairs.find('.') == std::string::npos));
    const auto [known, is_new] = by_pairs.emplace(pairs, simple);
    if (any) REQUIRE(known->second == simple);
  }
  CHECK(simpler > 1000);

  const auto text = [](auto change) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 1, 64, MaskKind::causal);
    problem.seq_kv = 4096;
    change(problem);
    return canonical_text(problem);
  };
  CHECK(text([](AttentionProblem& p) { p.mask_offset = 4095; }) == "forward bf16 b1 hq1 sq1 skv4096 d64");
  CHECK(text([](AttentionProblem& p) { p.mask_offset = 4094; }) == "forward bf16 b1 hq1 sq1 skv4096 d64 causal@4094");
  CHECK(text([](AttentionProblem& p) {
          p.seq_q = 4096;
          p.mask = MaskKind::window;
          p.first_offset = -5000;
        }) == "forward bf16 b1 hq1 sq4096 d64 causal");
}

TEST_CASE("a mask that nobody can ask for stays what it is, so that it is refused", "[nogpu]") {
  const auto refused = [](auto change) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 100, 64, MaskKind::causal);
    change(problem);
    CHECK(simplest_mask(problem) == problem);
    CHECK_THROWS_AS(validate(simplest_mask(problem)), Error);
  };
  refused([](AttentionProblem& p) { p.mask_offset = std::int64_t{1} << 40; });
  refused([](AttentionProblem& p) { p.mask_offset = std::int64_t{1} << 31; });
  refused([](AttentionProblem& p) { p.first_offset = -200; });
  refused([](AttentionProblem& p) {
    p.mask = MaskKind::window;
    p.first_offset = -(std::int64_t{1} << 40);
    p.mask_offset = 100;
  });
  refused([](AttentionProblem& p) {
    p.mask = MaskKind::window;
    p.first_offset = 200;
    p.mask_offset = 100;
  });
  refused([](AttentionProblem& p) { p.seq_q = 0; });
  refused([](AttentionProblem& p) {
    p.mask = MaskKind::none;
    p.mask_offset = 5;
  });
  CHECK_THROWS_AS(validate(parse_problem("sq1 d64 causal@99999999999")), Error);
}

TEST_CASE("omitted words of a problem have their default", "[nogpu]") {
  CHECK(parse_problem("sq100") == make_problem(DataType::bf16, 1, 1, 100, 64));
  CHECK(parse_problem("  fp16\thq8  sq100 d96\n") == make_problem(DataType::fp16, 1, 8, 100, 96));
  const AttentionProblem causal = parse_problem("causal skv30 sq10");
  CHECK(causal.mask_offset == 20);
  CHECK(parse_problem("causal@20 skv30 sq10") == causal);
}

TEST_CASE("what a problem's text may not say", "[nogpu]") {
  check_parse_error("", "empty");
  check_parse_error("  ", "empty");
  check_parse_error("forward sq100 window9", "'window9'");
  check_parse_error("sideways sq100", "'sideways'");
  check_parse_error("sq", "'sq'");
  check_parse_error("sq12x", "'sq12x'");
  check_parse_error("sq 12", "'sq'");
  check_parse_error("sq99999999999999999999", "'sq99999999999999999999'");
  check_parse_error("sq1.5", "'sq1.5'");
  check_parse_error("causal@", "'causal@'");
  check_parse_error("causal@left", "'causal@left'");
  check_parse_error("scale", "'scale'");
  check_parse_error("scalefast", "'scalefast'");
  check_parse_error("scale1e-46", "0 or infinite as a float");
  check_parse_error("scale-1e-46", "0 or infinite as a float");
  check_parse_error("scale1e39", "0 or infinite as a float");
  check_parse_error("sq5 sq6", "a second time");
  check_parse_error("bf16 fp16", "a second time");
  check_parse_error("causal causal-top-left", "a second time");
  check_parse_error("scale1 scale2", "a second time");
  check_parse_error("bshd bhsd", "a second time");
}

TEST_CASE("validation names the field and what it may be", "[nogpu]") {
  CHECK(complaint_about([](AttentionProblem&) {}).empty());
  for (const int head_dim : {0, -8, 4, 12, 257, 264}) {
    INFO(head_dim);
    const std::string text = complaint_about([&](AttentionProblem& p) { p.head_dim = head_dim; });
    CHECK_THAT(text, ContainsSubstring("head dim " + std::to_string(head_dim)) && ContainsSubstring("multiple of 8"));
  }
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.batch = 0; }), ContainsSubstring("batch 0"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.heads_q = -1; }), ContainsSubstring("query heads -1"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.heads_kv = 0; }), ContainsSubstring("key/value heads 0"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.heads_kv = 3; }), ContainsSubstring("not divisible"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.seq_q = 0; }), ContainsSubstring("query length 0"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.seq_kv = -5; }), ContainsSubstring("key length -5"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.seq_kv = (1ll << 31) - 1024; }),
             ContainsSubstring("below 2147482624"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.batch = 1ll << 29; }),
             ContainsSubstring("times query heads 8"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.batch = 1ll << 62; }), ContainsSubstring("split the batch"));
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    CHECK_THAT(complaint_about([&](AttentionProblem& p) { p.softmax_scale = scale; }),
               ContainsSubstring("positive and finite"));
  }
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.softmax_scale = 3e38f; }), ContainsSubstring("log2(e)"));
  CHECK(complaint_about([](AttentionProblem& p) { p.softmax_scale = 1e-45f; }).empty());
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.seq_q = p.seq_kv = (1ll << 31) - 1025, p.batch = 1 << 20; }),
             ContainsSubstring("fewer than 1125899906842624 elements"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.alignment = 4; }), ContainsSubstring("alignment 4"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.deterministic = true; }),
             ContainsSubstring("only a backward problem takes the word"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.mask = MaskKind::none, p.mask_offset = 1; }),
             ContainsSubstring("without a mask"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.mask_offset = 1ll << 31; }), ContainsSubstring("mask offset"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.mask_offset = -(1ll << 31); }),
             ContainsSubstring("mask offset"));
  CHECK(complaint_about([](AttentionProblem& p) { p.mask_offset = -100000; }).empty());
  CHECK(complaint_about([](AttentionProblem& p) { p.packed = true; }).empty());
  CHECK(complaint_about([](AttentionProblem& p) { p.packed = true, p.bias = PairTensor::hqk; }).empty());
  CHECK(complaint_about([](AttentionProblem& p) {
          p.packed = true, p.bias = PairTensor::hqk, p.max_seq_q = 7, p.max_seq_kv = 100000;
        }).empty());
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.packed = true, p.max_seq_q = 7; }),
             ContainsSubstring("most queries of a sequence 7: only packed sequences with a bias"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.bias = PairTensor::hqk, p.max_seq_kv = 7; }),
             ContainsSubstring("most keys of a sequence 7: only packed sequences with a bias"));
  CHECK_THAT(complaint_about(
                 [](AttentionProblem& p) { p.packed = true, p.attention_mask = PairTensor::qk, p.max_seq_kv = -1; }),
             ContainsSubstring("most keys of a sequence -1: must be from 1 to"));
}

TEST_CASE("windows: the simplest mask that says the same", "[nogpu]") {
  const auto text = [](const char* words) {
    return canonical_text(parse_problem(words)).substr(std::size("forward bf16 b1 hq1"));
  };
  CHECK(text("sq100 d64 window=10,5") == "sq100 d64 window=10,5");
  CHECK(text("sq100 skv300 d64 window=10,5") == "sq100 skv300 d64 window=10,5");
  CHECK(text("sq100 skv300 d64 window=10,5@200") == "sq100 skv300 d64 window=10,5");
  CHECK(text("sq100 skv300 d64 window=10,5@0") == "sq100 skv300 d64 window=15,0@5");
  CHECK(text("sq100 skv300 d64 window=10,open@250") == "sq100 skv300 d64 window=0,open@240");
  CHECK(text("sq100 d64 window=open,open") == "sq100 d64");
  CHECK(text("sq100 d64 window=open,0") == "sq100 d64 causal");
  CHECK(text("sq100 d64 window=open,7") == "sq100 d64 causal@7");
  CHECK(text("sq100 d64 window=99,0") == "sq100 d64 causal");
  CHECK(text("sq100 d64 window=98,0") == "sq100 d64 window=98,0");
  CHECK(text("sq100 d64 window=10,99") == "sq100 d64 window=10,open");
  CHECK(text("sq100 d64 window=99999999999999,99999999999999") == "sq100 d64");
  // So is a causal mask that hides nothing.
  CHECK(text("sq1 skv4096 d64 causal") == "sq1 skv4096 d64");
  CHECK(text("sq1 d64 causal-top-left") == "sq1 d64");
  CHECK(text("sq1 skv4096 d64 causal-top-left") == "sq1 skv4096 d64 causal-top-left");
  CHECK(text("sq100 d64 causal@99") == "sq100 d64");
  CHECK(text("sq100 d64 causal@98") == "sq100 d64 causal@98");
  CHECK(text("sq1 skv4096 d64 causal window=10,5") == "sq1 skv4096 d64 window=10,open");
  // Beside a causal mask a window ends at the diagonal, in whichever order they come.
  CHECK(text("sq100 d64 causal window=10,5") == "sq100 d64 window=10,0");
  CHECK(text("sq100 d64 window=10,open causal") == "sq100 d64 window=10,0");
  CHECK(text("sq100 skv300 d64 causal-top-left window=10,3@0") == "sq100 skv300 d64 window=10,0@0");
  const AttentionProblem problem = parse_problem("sq100 skv300 d64 window=10,5");
  CHECK(problem.mask == MaskKind::window);
  CHECK(problem.first_offset == 190);
  CHECK(problem.mask_offset == 205);
  for (const char* bad :
       {"window=", "window=3", "window=3,", "window=,3", "window=-1,0", "window=3,x", "window=3,4@", "window=3,4@y"}) {
    INFO(bad);
    CHECK_THROWS_WITH(parse_problem(std::string("sq100 d64 ") + bad), ContainsSubstring("window=LEFT,RIGHT"));
  }
  CHECK_THROWS_WITH(parse_problem("sq100 d64 window=3,4 window=3,4"), ContainsSubstring("a second time"));
  CHECK_THROWS_WITH(validate(parse_problem("sq100 d64 causal@-20 window=5,5")),
                    ContainsSubstring("no query attends to any key"));
  CHECK_THROWS_WITH(validate(parse_problem("sq100 d64 window=1,0@9999999999")),
                    ContainsSubstring("a window from offset"));
  CHECK_THAT(complaint_about([](AttentionProblem& p) { p.first_offset = 1; }), ContainsSubstring("without a window"));
}

TEST_CASE("texts of problems that nobody can solve are written and read without overflow", "[nogpu]") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [seq_q, seq_kv] : {std::pair(kLeast, kMost), std::pair(kMost, kLeast)}) {
    for (const char* window : {" window=3,4", " window=3,open", " window=3,4@9223372036854775807"}) {
      const std::string text = fmt::format("sq{} skv{} d64{}", seq_q, seq_kv, window);
      INFO(text);
      CHECK_NOTHROW(canonical_text(parse_problem(text)));
      CHECK_THROWS_AS(validate(parse_problem(text)), Error);
    }
    AttentionProblem problem;
    problem.mask = MaskKind::causal;
    problem.seq_q = seq_q;
    problem.seq_kv = seq_kv;
    const std::string text = canonical_text(problem);
    CHECK_THAT(text, ContainsSubstring("sq" + std::to_string(seq_q)) && ContainsSubstring(" causal"));
    CHECK(parse_problem(text) == problem);
    CHECK_THROWS_AS(validate(parse_problem(text)), Error);
  }
}

TEST_CASE("counted work and bytes", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 2, 8, 100, 64);
  problem.heads_kv = 2;
  problem.seq_kv = 50;
  CHECK(count_flops(problem) == 4.0 * 64 * 100 * 50 * 16);
  CHECK(count_bytes(problem) == 2.0 * (2 * 16 * 100 * 64 + 2 * 4 * 50 * 64) + 4.0 * 16 * 100);
}

TEST_CASE("equal problems hash equally, different ones rarely", "[nogpu]") {
  RandomValues random(2);
  std::unordered_set<std::size_t> hashes;
  std::unordered_set<std::string> texts;
  for (int i = 0; i < 2000; ++i) {
    const AttentionProblem problem = simplest_mask(random.problem());
    CHECK(AttentionProblemHash()(problem) == AttentionProblemHash()(parse_problem(canonical_text(problem))));
    hashes.insert(AttentionProblemHash()(problem));
    texts.insert(canonical_text(problem));
  }
  CHECK(hashes.size() == texts.size());
}

TEST_CASE("the default scale is the reciprocal square root", "[nogpu]") {
  CHECK(default_softmax_scale(64) == 0.125f);
  CHECK(default_softmax_scale(128) == Approx(1 / std::sqrt(128.0)).epsilon(1e-7));
}
