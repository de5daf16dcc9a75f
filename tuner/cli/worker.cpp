#include "tuner/trial/worker.h"

#include "tuner/cli/verb.h"

namespace attune::cli {

Verb make_worker(CommandLine& command) {
  CommandLine* verb = command.add_verb("worker", "runs candidates for a sweep in another process");
  verb->mask_probabilities();
  return {verb, [] { return worker_main(); }};
}

}  // namespace attune::cli
