#include "tuner/cli/output.h"

#include <fmt/core.h>

#include <cstdio>

#include "generator/error.h"
#include "tuner/output_file.h"

namespace attune::cli {
namespace {

std::FILE* results = stdout;

}  // namespace

void OutputOptions::add_to(CommandLine& verb) {
  verb.add_flag("--json", json, "print one JSON document on stdout");
  verb.add_flag("--verbose", verbose, "say more on stderr: database, caches, compiler");
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
  if (verbose) fmt::print(stderr, "{}\n", message);
}

void warn(const std::string& message) { fmt::print(stderr, "attune: {}\n", message); }

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), results); }

void print_field(std::string_view name, std::string_view value) { fmt::print(results, "{:<14} {}\n", name, value); }

}  // namespace attune::cli
