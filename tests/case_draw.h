#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace attune::tests {

/// Which cases of a long table run, so that CI ends within minutes: the first ones, and then one in so many, drawn by
/// their numbers so that no value of a factor is always left out. With ATTUNE_TEST_EXTENT=all, as the slow entries of
/// CTest have it, each.
class CaseDraw {
 public:
  explicit CaseDraw(unsigned one_in = 1, unsigned first = 6) : one_in_(one_in), first_(first) {}

  bool takes_next() {
    const unsigned number = next_++;
    // Multiples of the golden ratio: neighbours lie far apart.
    return takes_all() || number < first_ || (number * 2654435769u >> 16) % one_in_ == 0;
  }

  static bool takes_all() {
    const char* const extent = std::getenv("ATTUNE_TEST_EXTENT");
    return extent != nullptr && std::string_view(extent) == "all";
  }

 private:
  unsigned one_in_, first_, next_ = 0;
};

/// Part `index` of `parts` equal ones of a table.
struct TablePart {
  std::size_t index = 0, parts = 1;
  std::size_t begin(std::size_t rows) const { return rows * index / parts; }
  std::size_t end(std::size_t rows) const { return rows * (index + 1) / parts; }
};
/// The part of a pairwise table that CI runs on the emulator: the first of so many, for the first rows have most of the
/// pairs.
inline TablePart emulated_part(std::size_t parts = 3) {
  return CaseDraw::takes_all() ? TablePart{} : TablePart{0, parts};
}

}  // namespace attune::tests
