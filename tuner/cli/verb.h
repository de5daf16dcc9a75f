#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace attune::cli {

/// One verb of the command: what CLI11 parses, and what is done then. `execute` returns the exit status or throws
/// attune::Error.
struct Verb {
  CLI::App* app = nullptr;
  std::function<int()> execute;
};

Verb make_run(CLI::App& command);
Verb make_check(CLI::App& command);
Verb make_show(CLI::App& command);
Verb make_tune(CLI::App& command);
Verb make_bench(CLI::App& command);
Verb make_explain(CLI::App& command);
Verb make_compare(CLI::App& command);
Verb make_compile(CLI::App& command);
Verb make_report(CLI::App& command);
Verb make_input(CLI::App& command);
Verb make_devices(CLI::App& command);
Verb make_worker(CLI::App& command);
/// `db list`, `db best` and those of db_maintenance.h.
std::vector<Verb> make_db(CLI::App& command);

/// A verb with its description and an example at the end of --help.
CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& description,
                   const std::string& examples);

}  // namespace attune::cli
