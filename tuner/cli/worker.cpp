#include "tuner/worker.h"

#include "tuner/cli/verb.h"

namespace attune::cli {

Verb make_worker(CLI::App& command) {
  CLI::App* verb = command.add_subcommand("worker", "runs candidates for a sweep in another process");
  verb->group("");
  return {verb, [] { return worker_main(); }};
}

}  // namespace attune::cli
