#include "tuner/cli/table.h"

#include <fmt/core.h>

#include <algorithm>

namespace attune::cli {
namespace {

std::vector<Json> rows_of(const Json& document, const Table& table) {
  const Json& found = document.at(Json::json_pointer(table.rows));
  if (!found.is_array()) return {found};
  return {found.begin(), found.end()};
}

Json cell_of(const Json& row, const Column& column) {
  const Json::json_pointer place(column.place);
  return row.contains(place) ? row.at(place) : Json();
}

// As the document has it; nothing for null.
std::string exact(const Json& cell) {
  if (cell.is_null()) return "";
  return cell.is_string() ? cell.get<std::string>() : cell.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string rounded(const Json& cell) {
  return cell.is_number_float() ? fmt::format("{:.6g}", cell.get<double>()) : exact(cell);
}

std::string quoted_for_csv(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

std::string escaped_for_markdown(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

}  // namespace

std::string csv_of(const Json& document, const Table& table) {
  std::string text;
  const auto add_line = [&](const auto& cell_at) {
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      text.append(i == 0 ? "" : ",").append(quoted_for_csv(cell_at(table.columns[i])));
    text.append("\n");
  };
  add_line([](const Column& column) { return column.name; });
  for (const Json& row : rows_of(document, table))
    add_line([&](const Column& column) { return exact(cell_of(row, column)); });
  return text;
}

std::string markdown_of(const Json& document, const Table& table) {
  const std::vector<Json> rows = rows_of(document, table);
  std::string text = "|", rule = "|";
  for (const Column& column : table.columns) {
    text += " " + column.name + " |";
    const bool numbers =
        std::any_of(rows.begin(), rows.end(), [&](const Json& row) { return cell_of(row, column).is_number(); });
    rule += numbers ? "---:|" : "---|";
  }
  text += "\n" + rule + "\n";
  for (const Json& row : rows) {
    text += "|";
    for (const Column& column : table.columns) text += " " + escaped_for_markdown(rounded(cell_of(row, column))) + " |";
    text += "\n";
  }
  return text;
}

void print_document(const Json& document, const Table& table, Format format) {
  if (format == Format::json) return print_json(document);
  print(format == Format::csv ? csv_of(document, table) : markdown_of(document, table));
}

}  // namespace attune::cli
