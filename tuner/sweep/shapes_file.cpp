#include "tuner/sweep/shapes_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "generator/error.h"
#include "generator/problem/problem_fields.h"
#include "generator/problem/sequence_lengths.h"
#include "generator/problem/window.h"
#include "runtime/system/json_text.h"
#include "runtime/system/printable.h"
#include "tuner/database/input_file.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr std::string_view kName = "name", kKvLengths = "kv-lengths";

// What a row may name: a whole problem, its fields by the names of their flags, and a name.
std::vector<std::string_view> fields_of_rows() {
  std::vector<std::string_view> fields = {"problem"};
  for (const ProblemField& field : problem_fields()) {
    if (!field.flag.empty()) fields.push_back(field.flag);
    if (field.form == ProblemFieldForm::mask) fields.push_back("causal");
    if (field.key == "lengths") fields.push_back(kKvLengths);
  }
  fields.push_back(kName);
  return fields;
}

/// One row: texts by field name, without omitted ones, its name, and where it stands.
struct Row {
  std::string place;  // "shapes.csv, row 3"
  std::string name;
  std::map<std::string, std::string, std::less<>> fields;

  const std::string* find(std::string_view field) const {
    const auto found = fields.find(field);
    return found == fields.end() ? nullptr : &found->second;
  }
  [[noreturn]] void refuse_field(std::string_view field, const std::string& what) const {
    refuse(fmt::format("{}, field {}: {}", place, field, what));
  }
  // False if the field is there already.
  bool put(const std::string& field, std::string value) {
    if (field != kName) return fields.emplace(field, std::move(value)).second;
    if (!name.empty()) return false;
    if (printable(value) != value || value.find_first_of("\n\t") != std::string::npos)
      refuse_field(field, "it has characters that cannot be shown on a line; leave them out");
    name = std::move(value);
    return true;
  }
};

std::string field_name(std::string name, const std::string& place) {
  std::replace(name.begin(), name.end(), '_', '-');
  const std::vector<std::string_view> known = fields_of_rows();
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(fmt::format("{}: there is no field '{}'; fields: {}", place, name, fmt::join(known, ", ")));
  return name;
}

bool is_whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// The row as a canonical text: each field a word of it.
class CanonicalText {
 public:
  explicit CanonicalText(const Row& row) : row_(row) {
    for (const ProblemField& field : problem_fields()) {
      if (field.form == ProblemFieldForm::mask) {
        mask();
      } else if (const std::string* value = row_.find(field.flag)) {
        put(field, *value);
      } else if (field.needed) {
        row_.refuse_field(field.flag, "is missing");
      }
    }
  }
  const std::string& text() const { return text_; }

 private:
  void add(const std::string& word) { text_.append(text_.empty() ? "" : " ").append(word); }

  void put(const ProblemField& field, const std::string& value) {
    switch (field.form) {
      case ProblemFieldForm::number:
        if (!is_whole_number(value)) row_.refuse_field(field.flag, fmt::format("'{}' is not a whole number", value));
        return add(fmt::format("{}{}", field.word, value));
      case ProblemFieldForm::real:
        if (!is_number(value)) row_.refuse_field(field.flag, fmt::format("'{}' is not a number", value));
        return add(fmt::format("{}{}", field.word, value));
      case ProblemFieldForm::name:
        if (std::find(field.names.begin(), field.names.end(), value) == field.names.end())
          row_.refuse_field(field.flag, fmt::format("'{}' is none of: {}", value, fmt::join(field.names, ", ")));
        return add(field.word_of(value));
      case ProblemFieldForm::flag:
        if (value != "true" && value != "false")
          row_.refuse_field(field.flag, fmt::format("'{}' is neither true nor false", value));
        if (value == "true") add(std::string(field.word));
        return;
      case ProblemFieldForm::mask:
        return;
    }
  }
  void mask() {
    const std::string *mask = row_.find("mask"), *causal = row_.find("causal");
    if (causal && *causal != "true" && *causal != "false")
      row_.refuse_field("causal", fmt::format("'{}' is neither true nor false", *causal));
    // A window may stand beside "causal", which closes its right side.
    const bool is_causal = causal && *causal == "true", window = mask && mask->starts_with(kWindowWord);
    if (causal && mask && !window && is_causal != (*mask == "causal"))
      row_.refuse_field("causal", fmt::format("'{}' contradicts the mask '{}'; give one of them", *causal, *mask));
    if (is_causal) add("causal");
    if (mask && *mask != "none" && (window || !is_causal)) {
      AttentionProblem any;
      if (!apply_mask_word(*mask, &any))
        row_.refuse_field("mask", fmt::format("'{}' is none of: {}", *mask, kMaskWords));
      add(*mask);
    }
  }

  const Row& row_;
  std::string text_;
};

NamedLengths lengths_in(const Row& row, std::string_view field) {
  try {
    return parse_lengths(*row.find(field));
  } catch (const Error& error) {
    row.refuse_field(field, error.what());
  }
}

// A row that names the lengths of packed sequences, as one that names what they say of its other fields.
Row with_sequences(Row row) {
  const std::string_view of_queries = problem_field("lengths").flag;
  const std::string* lengths = row.find(of_queries);
  const bool named = lengths && names_lengths(*lengths), of_keys = row.find(kKvLengths);
  if (!named && of_keys) row.refuse_field(kKvLengths, "say the queries of each sequence, too, as lengths");
  if (!named) return row;
  NamedSequences packed;
  packed.queries = lengths_in(row, of_queries);
  packed.keys = of_keys ? lengths_in(row, kKvLengths) : packed.queries;
  packed.with_pairs = row.find(problem_field("bias").flag) || row.find(problem_field("attention_mask").flag);
  const std::size_t count = packed.queries.lengths.size(), of_key_lengths = packed.keys.lengths.size();
  if (count != of_key_lengths) {
    row.refuse_field(kKvLengths,
                     fmt::format("{} sequences, but lengths has {}; let both say the same", of_key_lengths, count));
  }
  for (const std::string_view field : {of_queries, kKvLengths}) row.fields.erase(std::string(field));
  for (const ProblemField& field : problem_fields()) {
    const std::optional<std::int64_t> said = packed.value_of(field.key);
    if (!said) continue;
    const std::string text = field.form == ProblemFieldForm::flag ? "true"
                             : field.form == ProblemFieldForm::name
                                 ? std::string(field.names[static_cast<std::size_t>(*said)])
                                 : std::to_string(*said);
    const auto [at, is_new] = row.fields.emplace(field.flag, text);
    const bool may_differ = field.key == "distribution" || field.key.starts_with("max_seq");
    if (!is_new && at->second != text && !may_differ)
      row.refuse_field(field.flag,
                       fmt::format("'{}', but the sequences of lengths say {}; leave it out", at->second, text));
  }
  return row;
}

AttentionProblem problem_of(const Row& named) {
  const Row row = named.find("problem") ? named : with_sequences(named);
  const std::string* whole = row.find("problem");
  if (whole && row.fields.size() > 1) {
    const auto other =
        std::find_if(row.fields.begin(), row.fields.end(), [](const auto& field) { return field.first != "problem"; });
    row.refuse_field(other->first, "problem already names the whole problem; put it into the text");
  }
  const std::string text = whole ? *whole : CanonicalText(row).text();
  try {
    const AttentionProblem problem = parse_problem(text);
    validate(problem);
    return problem;
  } catch (const Error& error) {
    if (whole) row.refuse_field("problem", error.what());
    refuse(fmt::format("{}: {}", row.place, error.what()));
  }
}

// Adds a name to those of a problem that is there more than once.
void add_name(const std::string& name, std::string* names) {
  if (name.empty() || name == *names) return;
  constexpr std::string_view kBetween = ", ";
  const std::string known = fmt::format("{}{}{}", kBetween, *names, kBetween);
  if (known.find(fmt::format("{}{}{}", kBetween, name, kBetween)) != std::string::npos) return;
  *names += fmt::format("{}{}", names->empty() ? "" : kBetween, name);
}

std::vector<NamedProblem> problems_of(const std::vector<Row>& rows, const std::string& name) {
  ProblemList problems;
  for (const Row& row : rows) problems.add(problem_of(row), row.name);
  if (problems.empty()) refuse(fmt::format("{} holds no problem", name));
  return problems.take();
}

/// Whether a line begins at `at` that is a comment, which is left behind then.
bool skip_comment(std::string_view text, std::size_t& at) {
  const std::size_t first = text.find_first_not_of(" \t", at);
  if (first == std::string_view::npos || text[first] != '#') return false;
  const std::size_t end = text.find('\n', first);
  at = end == std::string_view::npos ? text.size() : end + 1;
  return true;
}

/// The cells of one record of a CSV text (RFC 4180), from `at` on, which is left behind it.
std::vector<std::string> read_record(std::string_view text, std::size_t& at, const std::string& place) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char letter = text[at];
    if (quoted) {
      if (letter != '"') {
        cells.back() += letter;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += text[++at];
      } else {
        quoted = false;
      }
    } else if (letter == '"') {
      quoted = true;
    } else if (letter == ',') {
      cells.emplace_back();
    } else if (letter == '\n') {
      ++at;
      break;
    } else {
      cells.back() += letter;
    }
  }
  if (quoted) refuse(fmt::format("{}: a quotation mark is not closed", place));
  for (std::string& cell : cells) {
    const std::size_t first = cell.find_first_not_of(" \t\r");
    cell = first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(" \t\r") - first + 1);
  }
  return cells;
}

}  // namespace

void ProblemList::add(const AttentionProblem& problem, const std::string& name) {
  const auto [at, is_new] = places_.emplace(problem, problems_.size());
  if (is_new) problems_.push_back({problem, ""});
  add_name(name, &problems_[at->second].name);
}

std::vector<NamedProblem> parse_shapes_csv(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> header;
  std::vector<Row> rows;
  for (std::size_t at = 0; at < text.size();) {
    if (skip_comment(text, at)) continue;
    Row row;
    row.place = header.empty() ? fmt::format("{}, header", name) : fmt::format("{}, row {}", name, rows.size() + 1);
    const std::vector<std::string> cells = read_record(text, at, row.place);
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (header.empty()) {
      for (const std::string& cell : cells) {
        header.push_back(field_name(cell, row.place));
        if (std::count(header.begin(), header.end(), header.back()) > 1)
          refuse(fmt::format("{}: the field {} is there twice", row.place, header.back()));
      }
      continue;
    }
    if (cells.size() != header.size())
      refuse(fmt::format("{}: {} cells under a header of {}", row.place, cells.size(), header.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i].empty()) row.put(header[i], cells[i]);
    }
    rows.push_back(std::move(row));
  }
  return problems_of(rows, name);
}

std::vector<NamedProblem> parse_shapes_json(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name);
  if (!document.is_array())
    refuse(fmt::format("{}: must be an array of canonical texts or objects, not {}", name, document.type_name()));
  std::vector<Row> rows;
  for (const json& entry : document) {
    Row row;
    row.place = fmt::format("{}, row {}", name, rows.size() + 1);
    if (entry.is_string()) {
      row.fields["problem"] = entry.get<std::string>();
    } else if (entry.is_object()) {
      for (const auto& [key, value] : entry.items()) {
        const std::string field = field_name(key, row.place);
        if (value.is_null()) continue;
        if (value.is_structured()) row.refuse_field(field, fmt::format("must not be an {}", value.type_name()));
        if (field == kName && !value.is_string())
          row.refuse_field(field, fmt::format("{} is not a text", value.dump()));
        if (!row.put(field, value.is_string() ? value.get<std::string>() : value.dump()))
          row.refuse_field(field, "is there twice");
      }
    } else {
      refuse(fmt::format("{}: must be a canonical text or an object, not a {}", row.place, entry.type_name()));
    }
    rows.push_back(std::move(row));
  }
  return problems_of(rows, name);
}

std::vector<NamedProblem> read_shapes(const std::filesystem::path& path) {
  const std::string name = path.filename().string(), ending = path.extension().string();
  if (ending != ".json" && ending != ".csv")
    refuse(fmt::format("{}: a list of problems ends in .json or .csv", path.string()));
  const std::string text = read_input_file(path);
  return ending == ".json" ? parse_shapes_json(text, name) : parse_shapes_csv(text, name);
}

}  // namespace attune
