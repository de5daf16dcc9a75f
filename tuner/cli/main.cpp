#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "generator/error.h"
#include "runtime/system/standard_streams.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/help_text.h"
#include "tuner/cli/output.h"
#include "tuner/cli/verb.h"
#include "tuner/database/measurement.h"
#include "tuner/trial/worker_process.h"

namespace attune::cli {

CommandLine* add_verb(CommandLine& parent, const std::string& name, const std::string& description,
                      const std::string& examples) {
  CommandLine* verb = parent.add_verb(name, description);
  std::string footer = "Example:\n  ";
  for (const char letter : examples) footer += letter == '\n' ? std::string("\n  ") : std::string(1, letter);
  verb->set_footer(footer);
  return verb;
}

namespace {

/// Whether a document is wanted even if the arguments cannot be parsed.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 || std::strcmp(argv[i], "--format=json") == 0) return true;
    if (std::strcmp(argv[i], "--format") == 0 && i + 1 < argc && std::strcmp(argv[i + 1], "json") == 0) return true;
  }
  return false;
}

int report_error(std::string_view code, const std::string& message, bool json, ExitStatus status) {
  warn(message);
  if (json) print_json({{"status", "error"}, {"code", code}, {"message", message}});
  return status;
}

int run(int argc, char** argv) {
  CommandLine program("Generates, proves and tunes FlashAttention kernels.", "attune");
  program.require_verb();
  program.set_help_columns(help_columns());
  program.set_version(std::string(attune_version()));
  program.set_footer(
      "Example:\n  attune check --heads 4 --seq 300 --head-dim 64 --causal\n`attune VERB --help` describes a verb. "
      "Exit status: 0 ok, 1 a check failed or nothing was found, 2 bad input, 3 another error.");
  std::vector<Verb> verbs = {make_run(program),     make_check(program),      make_show(program),
                             make_tune(program),    make_bench(program),      make_explain(program),
                             make_compare(program), make_compile(program),    make_pack(program),
                             make_export(program),  make_report(program),     make_input(program),
                             make_devices(program), make_completion(program), make_worker(program)};
  for (Verb& verb : make_db(program)) verbs.push_back(std::move(verb));

  // `attune help VERB` is `attune VERB --help`, which is where CLI11 answers.
  OutputOptions help_output;
  help_output.add_to(
      *add_verb(program, "help", "describe a verb and its flags", "attune help tune\nattune help db prune"));
  std::vector<const char*> words(argv, argv + argc);
  const bool of_help_itself = argc > 2 && std::strcmp(argv[2], "--help") == 0;
  if (argc > 1 && std::strcmp(argv[1], "help") == 0 && !of_help_itself) {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }

  const bool json = wants_json(argc, argv);
  const CommandLine::Outcome outcome = program.parse(static_cast<int>(words.size()), words.data());
  if (outcome.kind == CommandLine::Outcome::Kind::asked) {
    if (json) {
      print_json({{"status", "ok"}, {"text", outcome.text}});
    } else {
      print(outcome.text);
    }
    return kOk;
  }
  if (outcome.kind == CommandLine::Outcome::Kind::refused) {
    if (!outcome.help.empty() && !json) print_message(outcome.help);
    return report_error("invalid_argument", outcome.text, json, kBadInput);
  }
  for (const Verb& verb : verbs) {
    if (!verb.line->parsed()) continue;
    try {
      return verb.execute();
    } catch (const NothingFound& error) {
      return report_error(to_string(error.code()), error.what(), json, kCheckFailed);
    } catch (const Error& error) {
      return report_error(to_string(error.code()), error.what(), json, exit_status(error.code()));
    } catch (const std::bad_alloc&) {
      return report_error("out_of_memory", "not enough host memory for this problem: make it smaller", json,
                          kInternalError);
    } catch (const std::exception& error) {
      return report_error("internal", error.what(), json, kInternalError);
    }
  }
  return kBadInput;
}

}  // namespace
}  // namespace attune::cli

int main(int argc, char** argv) {
  attune::keep_standard_descriptors();
  attune::survive_failed_writes();
  attune::be_attune_command();
  const int status = attune::cli::run(argc, argv);
  // A full disk or a closed pipe: a document that was cut off is no success.
  return attune::cli::report_lost_results() ? status : attune::cli::kBadInput;
}
