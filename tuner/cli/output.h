#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tuner/cli/command_line.h"

namespace attune::cli {

using Json = nlohmann::ordered_json;

/// --json and --verbose of a verb. Results go to stdout: text for people, or with --json exactly one document. Messages
/// go to stderr.
struct OutputOptions {
  bool json = false;
  bool verbose = false;

  void add_to(CommandLine& verb);
  /// A message on stderr, with --verbose only.
  void say(const std::string& message) const;
};

/// A message on stderr that is always shown.
void warn(const std::string& message);

void print_json(const Json& document);
void print(std::string_view text);
/// "config      sm80 q128 kv64 w4 st2": one line of a human report.
void print_field(std::string_view name, std::string_view value);

}  // namespace attune::cli
