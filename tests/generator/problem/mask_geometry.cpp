#include "generator/problem/mask_geometry.h"

#include <algorithm>
#include <vector>

#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

namespace {

// Whether each pair is attended to, by the definition.
struct Pairs {
  std::int64_t seq_q, seq_kv;
  std::vector<bool> attended;

  explicit Pairs(const MaskGeometry& mask) : seq_q(mask.seq_q), seq_kv(mask.seq_kv) {
    for (std::int64_t query = 0; query < seq_q; ++query) {
      for (std::int64_t key = 0; key < seq_kv; ++key)
        attended.push_back(mask.first_diagonal <= key - query && key - query <= mask.last_diagonal);
    }
  }
  bool at(std::int64_t query, std::int64_t key) const {
    return attended[static_cast<std::size_t>(query * seq_kv + key)];
  }
};

// A walk is right if what it leaves out holds no attended pair, and no block at either end could be left out, and if
// each block that it says to need no predicate is attended to as a whole. `at(row, other)`: of a tile's row and a
// streamed one.
template <typename At>
void check_blocks(const BlockRange& blocks, std::int64_t first, std::int64_t rows, std::int64_t streamed,
                  std::int64_t block, bool whole_at_end, const At& at) {
  const auto count = [&](std::int64_t index) {  // attended pairs of a block
    std::int64_t pairs = 0;
    for (std::int64_t row = first; row < first + rows; ++row) {
      for (std::int64_t other = index * block; other < std::min((index + 1) * block, streamed); ++other)
        pairs += at(row, other);
    }
    return pairs;
  };
  REQUIRE(blocks.begin <= blocks.unmasked_begin);
  REQUIRE(blocks.unmasked_begin <= blocks.unmasked_end);
  REQUIRE(blocks.unmasked_end <= blocks.end);
  REQUIRE(blocks.all() >= blocks.masked());
  for (std::int64_t index = 0; index * block < streamed; ++index) {
    INFO("block " << index);
    const std::int64_t pairs = count(index), height = std::min(block, streamed - index * block);
    if (index < blocks.begin || index >= blocks.end) REQUIRE(pairs == 0);
    const bool filled = whole_at_end || height == block;
    const bool unmasked = blocks.unmasked_begin <= index && index < blocks.unmasked_end;
    if (blocks.begin <= index && index < blocks.end) REQUIRE(unmasked == (filled && pairs == rows * height));
  }
  if (blocks.all() > 0) {
    REQUIRE(count(blocks.begin) > 0);
    REQUIRE(count(blocks.end - 1) > 0);
  }
}

void check(const MaskGeometry& mask) {
  INFO("queries " << mask.seq_q << ", keys " << mask.seq_kv << ", diagonals " << mask.first_diagonal << " to "
                  << mask.last_diagonal);
  const Pairs pairs(mask);
  REQUIRE(mask.attended_pairs() == std::count(pairs.attended.begin(), pairs.attended.end(), true));
  for (std::int64_t query = 0; query < mask.seq_q; ++query) {
    const RowRange keys = mask.keys_of_query(query);
    REQUIRE(keys.size() >= 0);
    for (std::int64_t key = 0; key < mask.seq_kv; ++key) {
      REQUIRE(keys.contains(key) == pairs.at(query, key));
      REQUIRE(mask.queries_of_key(key).contains(query) == pairs.at(query, key));
    }
  }
  for (const std::int64_t tile : {1, 4, 7}) {
    for (const std::int64_t block : {1, 3, 8}) {
      INFO("tiles of " << tile << ", blocks of " << block);
      for (std::int64_t first = 0; first < mask.seq_q; first += tile)
        check_blocks(mask.key_blocks(first, tile, block), first, std::min(tile, mask.seq_q - first), mask.seq_kv, block,
                     false, [&](std::int64_t query, std::int64_t key) { return pairs.at(query, key); });
      for (std::int64_t first = 0; first < mask.seq_kv; first += tile)
        check_blocks(mask.query_blocks(first, tile, block), first, std::min(tile, mask.seq_kv - first), mask.seq_q,
                     block, true, [&](std::int64_t key, std::int64_t query) { return pairs.at(query, key); });
    }
  }
}

}  // namespace

TEST_CASE("ranges, counts and blocks of a mask agree with its pairs, whichever sides are open", "[nogpu]") {
  for (const std::int64_t seq_q : {1, 5, 17}) {
    for (const std::int64_t seq_kv : {1, 7, 16}) {
      for (std::int64_t last = -20; last <= 20; last += 3) {
        check({seq_q, seq_kv, -kOpenDiagonal, last});
        check({seq_q, seq_kv, last, kOpenDiagonal});
        for (const std::int64_t width : {1, 2, 4, 11}) check({seq_q, seq_kv, last - width + 1, last});
      }
      check({seq_q, seq_kv, -kOpenDiagonal, kOpenDiagonal});
    }
  }
}

TEST_CASE("a problem's mask is its band of diagonals", "[nogpu]") {
  const auto band = [](const char* text) {
    const MaskGeometry mask(parse_problem(text));
    return std::pair(mask.first_diagonal, mask.last_diagonal);
  };
  CHECK(band("sq5 skv9") == std::pair(-kOpenDiagonal, kOpenDiagonal));
  CHECK(band("sq5 skv9 causal") == std::pair(-kOpenDiagonal, std::int64_t{4}));
  CHECK(band("sq5 skv9 causal-top-left") == std::pair(-kOpenDiagonal, std::int64_t{0}));
  CHECK(band("sq5 skv9 causal@-2") == std::pair(-kOpenDiagonal, std::int64_t{-2}));
  CHECK(band("sq5 skv9 window=2,1") == std::pair(std::int64_t{2}, std::int64_t{5}));
  CHECK(band("sq50 skv9 window=2,1@-3") == std::pair(std::int64_t{-5}, std::int64_t{-2}));
  CHECK(band("sq5 skv9 window=1,open") == std::pair(std::int64_t{3}, kOpenDiagonal));
  CHECK(hides_pairs(MaskKind::causal));
  CHECK(hides_pairs(MaskKind::window));
  CHECK_FALSE(hides_pairs(MaskKind::none));
}

TEST_CASE("pairs of the longest sequences are counted exactly", "[nogpu]") {
  CHECK(count_attended_pairs(make_problem(DataType::bf16, 1, 1, 1 << 30, 64, MaskKind::causal)) ==
        (std::int64_t{1} << 29) * ((std::int64_t{1} << 30) + 1));
  const std::int64_t longest = (std::int64_t{1} << 31) - 1025;
  CHECK(count_attended_pairs(make_problem(DataType::bf16, 1, 1, longest, 64)) == longest * longest);
  CHECK(MaskGeometry(longest, longest, -1023, 0).attended_pairs() == 1024 * longest - 1024 * 1023 / 2);
}

TEST_CASE("steps of tiles: what causal tiles walk grows, what a window's walk does not", "[nogpu]") {
  const MaskGeometry causal(parse_problem("sq1024 skv1024 causal"));
  const StepCount steps = causal.key_steps(128, 64);
  CHECK(steps.shortest == 2);
  CHECK(steps.longest == 16);
  CHECK(steps.mean == Approx(9));
  CHECK(steps.masked == Approx(2));
  CHECK(causal.query_steps(128, 64).longest == 16);
  const StepCount window = MaskGeometry(1024, 1024, -255, 0).key_steps(128, 64);
  CHECK(window.longest == 6);
  CHECK(window.masked == Approx((2 + 2 + 6 * 4) / 8.0));
  CHECK(MaskGeometry(parse_problem("sq100 skv100")).key_steps(64, 64).masked == 1);
}

TEST_CASE("other lengths leave the kernels of a problem what they are", "[nogpu]") {
  RandomValues random(6);
  for (int i = 0; i < 3000; ++i) {
    const AttentionProblem problem = simplest_mask(random.problem());
    const AttentionProblem other = with_lengths(problem, random.between(1, 300), random.between(2, 300));
    INFO(canonical_text(problem) << " -> " << canonical_text(other));
    REQUIRE_NOTHROW(validate(other));
    REQUIRE(simplest_mask(other) == other);
    REQUIRE(other.mask == problem.mask);
  }
}

TEST_CASE("other lengths leave a mask what it is", "[nogpu]") {
  const auto cut = [](const char* text) { return canonical_text(with_lengths(parse_problem(text), 10, 30)); };
  CHECK(cut("sq100 skv300") == "forward bf16 b1 hq1 sq10 skv30 d64");
  CHECK(cut("sq100 skv300 causal") == "forward bf16 b1 hq1 sq10 skv30 d64 causal");
  CHECK(cut("sq100 skv300 causal-top-left") == "forward bf16 b1 hq1 sq10 skv30 d64 causal-top-left");
  CHECK(cut("sq100 skv300 causal@5") == "forward bf16 b1 hq1 sq10 skv30 d64 causal@5");
  CHECK(cut("sq100 skv300 causal@-70") == "forward bf16 b1 hq1 sq10 skv30 d64 causal@-10");
  CHECK(cut("sq100 skv300 causal@290") == "forward bf16 b1 hq1 sq10 skv30 d64 causal@28");
  CHECK(cut("sq100 skv300 window=10,5") == "forward bf16 b1 hq1 sq10 skv30 d64 window=10,5");
  CHECK(cut("sq100 skv300 window=200,0") == "forward bf16 b1 hq1 sq10 skv30 d64 window=28,0");
  CHECK(cut("sq100 skv300 window=290,open") == "forward bf16 b1 hq1 sq10 skv30 d64 window=28,open");
  CHECK(cut("sq100 skv300 window=3,open") == "forward bf16 b1 hq1 sq10 skv30 d64 window=3,open");
  CHECK(cut("sq100 skv300 window=4,0@-2") == "forward bf16 b1 hq1 sq10 skv30 d64 window=4,0@-2");
}

TEST_CASE("packed sequences are rated as equal ones", "[nogpu]") {
  const auto equal = [](const char* text) { return canonical_text(with_equal_lengths(parse_problem(text))); };
  CHECK(equal("b4 sq4096 d64 packed") == "forward bf16 b4 hq1 sq1024 d64 used");
  CHECK(equal("b4 sq4096 skv8192 d64 causal packed") == "forward bf16 b4 hq1 sq1024 skv2048 d64 causal used");
  CHECK(equal("b3 sq100 d64 causal-top-left used-top-left packed") ==
        "forward bf16 b3 hq1 sq34 d64 causal used-top-left");
  CHECK(equal("b4 sq4096 d64 window=127,0 packed") == "forward bf16 b4 hq1 sq1024 d64 window=127,0 used");
  CHECK(equal("b4 sq4096 d64") == "forward bf16 b4 hq1 sq4096 d64");
  // The pairs of one sequence alone.
  CHECK(count_attended_pairs(parse_problem("b4 sq4096 d64 packed lengths=equal")) == 1024 * 1024);
  CHECK(count_flops(parse_problem("b4 sq4096 d64 packed lengths=equal")) == 4.0 * 64 * 4 * 1024 * 1024);
}
