#pragma once

#include <string>
#include <vector>

#include "tuner/cli/output.h"

namespace attune::cli {

/// A column of a table, and where its cells are in each row's JSON object: "/a/config", say. A row without that has an
/// empty cell.
struct Column {
  std::string name, place;
};

/// The table of a JSON document, by JSON pointers: an array of rows, or an object that is the only row.
struct Table {
  std::string rows;
  std::vector<Column> columns;
};

/// RFC 4180 with "\n": a header, then a row a line. Numbers as in the document.
std::string csv_of(const Json& document, const Table& table);
/// A pipe table; fractions have six digits, and columns of numbers are aligned to the right.
std::string markdown_of(const Json& document, const Table& table);

/// Prints the document, or its table, as --format or --json ask.
void print_document(const Json& document, const Table& table, Format format);

}  // namespace attune::cli
