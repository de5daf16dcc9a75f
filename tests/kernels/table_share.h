#pragma once

#include <cstddef>

namespace attune::tests {

/// Which part of a table of cases runs, whose columns are masks, devices and the like: one column of each row, a
/// different one from row to row, so that every row and every column are seen; all the others, in slow cases; or all.
enum class TableShare { one_column, other_columns, all };

inline bool is_in(TableShare share, std::size_t row, std::size_t column, std::size_t columns) {
  return share == TableShare::all || (row % columns == column) == (share == TableShare::one_column);
}

}  // namespace attune::tests
