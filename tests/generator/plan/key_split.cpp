#include "generator/plan/key_split.h"

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"
#include "tests/catch.h"

using namespace attune;

namespace key_split_test {
namespace {
// Tiles of 128 queries of a head on 132 SMs.
KeySplit filling() {
  return {.parts = kFillParts,
          .slots = 132,
          .tile_queries = 128,
          .tile_heads = 1,
          .least_keys = 256,
          .most_rows = 256 * 132};
}
std::int32_t parts_of(const char* problem, const KeySplit& split = filling()) {
  return split.parts_of(parse_problem(problem));
}
}  // namespace

TEST_CASE("a number of parts is the same for all problems", "[nogpu]") {
  CHECK(parts_of("hq8 sq512 skv8192 d128", {}) == 1);
  for (const char* problem : {"hq8 sq512 skv8192 d128", "hq1 sq1 skv1 d8", "b64 hq64 sq4096 d64"})
    CHECK(parts_of(problem, {.parts = 7}) == 7);
  CHECK_FALSE(KeySplit{}.is_split());
  CHECK(filling().is_split());
}

TEST_CASE("parts fill the device in one wave, or in a few where one would leave much idle", "[nogpu]") {
  CHECK(parts_of("hq8 sq512 skv8192 d128") == 4);   // 32 tiles: 128 of 132
  CHECK(parts_of("hq12 sq512 skv8192 d128") == 5);  // 48 tiles: two parts are 96, five are 240 of 264
  CHECK(parts_of("hq96 sq64 skv8192 d128") == 4);   // 96 tiles: 384 of 396
  CHECK(parts_of("hq33 sq512 skv8192 d128") == 1);  // 132 tiles
  CHECK(parts_of("hq66 sq128 skv8192 d128") == 2);
}

TEST_CASE("a part has keys enough, and results of all parts fit the workspace", "[nogpu]") {
  CHECK(parts_of("hq4 sq1 skv8192 d128") == 32);  // of 256 keys; 33 would fill
  CHECK(parts_of("hq4 sq1 skv9000 d128") == 33);
  CHECK(parts_of("hq4 sq1 skv511 d128") == 1);
  CHECK(parts_of("hq4 sq1 skv512 d128") == 2);
  CHECK(parts_of("hq1 sq1 skv1000000 d128") == kMostKeyParts);
  // A tile sees no more than its window, or than its last query does.
  CHECK(parts_of("hq4 sq1 skv9000 d128 window=1023,0") == 4);
  CHECK(parts_of("hq4 sq100 skv9000 d128 window=1023,0") == 4);
  CHECK(parts_of("hq4 sq128 skv9000 d128 causal-top-left") == 1);
  CHECK(parts_of("hq4 sq128 skv9000 d128 causal@-1000000") == 1);
  KeySplit little = filling();
  little.most_rows = 4096 * 3;
  CHECK(parts_of("hq8 sq512 skv8192 d128", little) == 3);
}

}  // namespace key_split_test
