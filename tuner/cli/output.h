#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tuner/cli/command_line.h"

namespace attune::cli {

using Json = nlohmann::ordered_json;

/// How a verb prints its results: for people, as one document, or as a table.
enum class Format { text, json, csv, markdown };

/// --json and --verbose of a verb. Results go to stdout: text for people, or with --json exactly one document. Messages
/// go to stderr.
struct OutputOptions {
  bool json = false;
  bool verbose = false;
  std::string format_word;  ///< of --format; empty: not given

  void add_to(CommandLine& verb);
  /// The same and --format, for a verb whose results make a table.
  void add_with_table_to(CommandLine& verb);
  /// Throws Error(invalid_argument) if --json and --format disagree.
  Format format() const;
  /// For a verb that writes a file: if that is standard output, nothing else goes there, and what print() and
  /// print_field() say goes to stderr. Throws Error(invalid_argument) if --json wants it, too.
  void leave_stdout_to(const std::string& file) const;
  /// A message on stderr, with --verbose only.
  void say(const std::string& message) const;
};

/// What follows is the only way to print. Nothing of it fails or ends the process because of what stdout and stderr
/// are; report_lost_results() tells at the end whether results got lost.

/// A message on stderr that is always shown.
void warn(const std::string& message) noexcept;
/// A line on stderr.
void print_message(std::string_view line) noexcept;
/// One line on stderr that the next one replaces on a terminal, until end_status() leaves it.
void print_status(std::string_view line) noexcept;
void end_status() noexcept;

void print_json(const Json& document);
/// A document as text of ASCII alone, so that no terminal obeys it; bytes that are no UTF-8 become U+FFFD. On one line
/// if `indent` is -1.
std::string json_text(const Json& document, int indent = -1);
/// On stdout as printable() has it, as the functions above and below do.
void print(std::string_view text);
/// A line of stdout as printable_line() has it: what a file or a database says in it begins no other line.
void print_line(std::string_view line);
/// "config         sm80 q128 kv64 w4 st2": a line of a human report. What follows a newline in a value is indented, so
/// that it is no field of its own.
void print_field(std::string_view name, std::string_view value);

/// For the end of the process: writes out what was printed on stdout. If any of it was lost it says so on stderr and
/// returns false.
bool report_lost_results() noexcept;

}  // namespace attune::cli
