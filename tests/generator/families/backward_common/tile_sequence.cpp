#include "generator/families/backward_common/tile_sequence.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("uneven steps: by CTAs that take the next tile, and by those that take one of each round", "[nogpu]") {
  // Two heads with tiles of 4, 3, 2 and 1 steps.
  const AttentionProblem problem = parse_problem("backward bf16 hq2 sq256 d64 causal");
  const TileRowCounts rows{true, 64, 64};
  TileSequence sequence;
  sequence.tiles = 4;
  sequence.heads = 2;
  CHECK(uneven_steps(problem, rows, sequence, 3, 0) == Approx(7 - 20 / 3.0).margin(0.05));
  CHECK(uneven_steps(problem, rows, sequence, 4, 0) == Approx(0).margin(0.05));
  sequence.in_rounds = true;
  CHECK(uneven_steps(problem, rows, sequence, 3, 0) == Approx(9 - 20 / 3.0));  // 4 + 3 + 2; 3 + 4 + 1; 2 + 1
  CHECK(uneven_steps(problem, rows, sequence, 4, 0) == Approx(0).margin(1e-9));
  CHECK(uneven_steps(problem, rows, sequence, 8, 0.5) == Approx(4.5 - 3));
  sequence.heads = 202;
  CHECK(uneven_steps(problem, rows, sequence, 4, 0) == Approx(0).margin(1e-9));
}

TEST_CASE("uneven steps: rounds in which the same CTAs get the longest tiles again and again", "[nogpu]") {
  // 16 heads of 128 tiles on the 132 SMs of an H200: 15.5 rounds.
  const AttentionProblem problem = parse_problem("backward bf16 hq16 sq16384 d128 causal");
  TileSequence sequence;
  sequence.tiles = 128;
  sequence.heads = 16;
  sequence.in_rounds = true;
  std::vector<double> sums(132);
  for (int number = 0; number < 2048; ++number) {
    const int round = number / 132, place = number % 132, tile = number % 128;
    sums[static_cast<std::size_t>(round % 2 == 0 ? place : 131 - place)] += 256 - 2 * tile;
  }
  const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / 132;
  const double uneven = *std::max_element(sums.begin(), sums.end()) - mean;
  CHECK(uneven > 0.4 * mean);
  CHECK(uneven_steps(problem, {true, 128, 64}, sequence, 132, 0) == Approx(uneven));
}
