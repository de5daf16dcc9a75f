#include "tuner/cli/output.h"

#include <fmt/core.h>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "runtime/system/standard_streams.h"
#include "tuner/database/output_file.h"

namespace attune::cli {
namespace {

void (*write_results)(std::string_view) noexcept = write_to_standard_output;

/// What a message needs memory for may fail: then it is lost.
template <typename Say>
void quietly(const Say& say) noexcept {
  try {
    say();
  } catch (...) {
  }
}

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
  write_results = write_to_standard_error;
}

void OutputOptions::say(const std::string& message) const {
  if (verbose) print_message(message);
}

void warn(const std::string& message) noexcept {
  quietly([&] { print_message("attune: " + message); });
}

void print_message(std::string_view line) noexcept {
  quietly([&] { write_to_standard_error(printable(line) + "\n"); });
}

void print_status(std::string_view line) noexcept {
  constexpr const char* kReplaceLine = "\r\x1b[K";
  quietly([&] { write_to_standard_error(kReplaceLine + printable(line)); });
}

void end_status() noexcept { write_to_standard_error("\n"); }

void print_json(const Json& document) { print(json_text(document, 2) + "\n"); }

std::string json_text(const Json& document, int indent) {
  return document.dump(indent, ' ', true, Json::error_handler_t::replace);
}

void print(std::string_view text) { write_results(printable(text)); }

void print_line(std::string_view line) { print(printable_line(line) + "\n"); }

void print_field(std::string_view name, std::string_view value) {
  constexpr std::size_t kNameWidth = 14;
  std::string text = fmt::format("{:<{}} ", name, kNameWidth);
  for (const char c : value) {
    text += c;
    if (c == '\n') text.append(kNameWidth + 1, ' ');
  }
  print(text + "\n");
}

bool report_lost_results() noexcept {
  const std::string why = flush_standard_output();
  if (why.empty()) return true;
  quietly([&] { warn(fmt::format("standard output cannot be written: {}; results were lost", why)); });
  return false;
}

}  // namespace attune::cli
