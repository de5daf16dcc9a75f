#include "generator/families/backward_common/tile_sequence.h"

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
  // Of many tiles the last rounds count, from one that goes forwards on.
  sequence.heads = 202;
  CHECK(uneven_steps(problem, rows, sequence, 4, 0) == Approx(0).margin(1e-9));
}
