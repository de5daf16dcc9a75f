#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tuner/cli/command_line.h"

namespace attune::cli {

/// One verb of the command: what is parsed, and what is done then. `execute` returns the exit status or throws
/// attune::Error.
struct Verb {
  CommandLine* line = nullptr;
  std::function<int()> execute;
};

Verb make_run(CommandLine& command);
Verb make_check(CommandLine& command);
Verb make_show(CommandLine& command);
Verb make_tune(CommandLine& command);
Verb make_bench(CommandLine& command);
Verb make_explain(CommandLine& command);
Verb make_compare(CommandLine& command);
Verb make_compile(CommandLine& command);
Verb make_pack(CommandLine& command);
Verb make_export(CommandLine& command);
Verb make_report(CommandLine& command);
Verb make_input(CommandLine& command);
Verb make_devices(CommandLine& command);
Verb make_completion(CommandLine& command);
Verb make_worker(CommandLine& command);
/// `db list`, `db best` and those of db_maintenance.h.
std::vector<Verb> make_db(CommandLine& command);

/// A verb with its description and an example at the end of --help.
CommandLine* add_verb(CommandLine& parent, const std::string& name, const std::string& description,
                      const std::string& examples);

}  // namespace attune::cli
