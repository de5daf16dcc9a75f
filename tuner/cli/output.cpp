#include "tuner/cli/output.h"

#include <fmt/core.h>

#include <cstdio>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "tuner/database/output_file.h"

namespace attune::cli {
namespace {

std::FILE* results = stdout;

}  // namespace

void OutputOptions::add_to(CommandLine& verb) {
  verb.add_flag("--json", json, "print one JSON document on stdout");
  verb.add_flag("--verbose", verbose, "say more on stderr: database, caches, compiler");
}

void OutputOptions::add_with_table_to(CommandLine& verb) {
  verb.add_option("--format", format_word,
                  "text for people (default), json (the same as --json), or a table: csv, markdown")
      .one_of({"text", "json", "csv", "markdown"});
  add_to(verb);
}

Format OutputOptions::format() const {
  if (json && !format_word.empty() && format_word != "json") {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--json and --format {} contradict each other: give one of them", format_word));
  }
  if (json || format_word == "json") return Format::json;
  return format_word == "csv" ? Format::csv : format_word == "markdown" ? Format::markdown : Format::text;
}

void OutputOptions::leave_stdout_to(const std::string& file) const {
  if (!OutputFile::is_standard_output(file)) return;
  if (json) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--output {} takes standard output, and --json needs it: name a file, or leave one of them "
                            "out",
                            file));
  }
  results = stderr;
}

void OutputOptions::say(const std::string& message) const {
  if (verbose) fmt::print(stderr, "{}\n", printable(message));
}

void warn(const std::string& message) { fmt::print(stderr, "attune: {}\n", printable(message)); }

void print_json(const Json& document) { fmt::print("{}\n", json_text(document, 2)); }

std::string json_text(const Json& document, int indent) {
  return document.dump(indent, ' ', true, Json::error_handler_t::replace);
}

void print(std::string_view text) {
  const std::string shown = printable(text);
  std::fwrite(shown.data(), 1, shown.size(), results);
}

void print_field(std::string_view name, std::string_view value) { print(fmt::format("{:<14} {}\n", name, value)); }

}  // namespace attune::cli
