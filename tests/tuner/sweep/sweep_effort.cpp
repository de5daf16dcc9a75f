#include "tuner/sweep/sweep_effort.h"

#include <utility>

#include "tests/catch.h"

using namespace attune;

TEST_CASE("patience grows with the space, within bounds", "[nogpu]") {
  for (const auto& [size, patience] : {std::pair(10, 15), {375, 15}, {500, 20}, {900, 36}, {11000, 40}}) {
    INFO(size);
    CHECK(effort_of(Rigor::measure, static_cast<std::size_t>(size)).patience == patience);
  }
  CHECK(effort_of(Rigor::patient, 500).patience == 100);
  CHECK(effort_of(Rigor::exhaustive, 500).patience == 0);
}
