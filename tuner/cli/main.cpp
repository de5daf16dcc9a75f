#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "generator/error.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/verb.h"
#include "tuner/measurement.h"

namespace attune::cli {

CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& description,
                   const std::string& examples) {
  CLI::App* verb = parent.add_subcommand(name, description);
  std::string footer = "Example:\n  ";
  for (const char letter : examples) footer += letter == '\n' ? std::string("\n  ") : std::string(1, letter);
  verb->footer(footer);
  return verb;
}

namespace {

/// Whether a document is wanted even if the arguments cannot be parsed.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

int report_error(std::string_view code, const std::string& message, bool json, ExitStatus status) {
  warn(message);
  if (json) print_json({{"status", "error"}, {"code", code}, {"message", message}});
  return status;
}

const CLI::App& innermost(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed = app.get_subcommands([](const CLI::App* verb) { return verb->parsed(); });
  return parsed.empty() ? app : innermost(*parsed.back());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? fmt::format("{} {}", full_name(*app.get_parent()), app.get_name()) : app.get_name();
}

/// "run, check, show, ...", without hidden ones.
std::string verbs_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); }))
    names += (names.empty() ? "" : ", ") + verb->get_name();
  return names;
}

/// What CLI11 says, but that a missing verb is told from a mistyped one.
std::string describe(const CLI::ParseError& error, const CLI::App& where) {
  if (where.get_require_subcommand_min() == 0) return error.what();
  for (const std::string& word : where.remaining()) {
    if (!word.starts_with('-')) return fmt::format("unknown verb '{}'; verbs: {}", word, verbs_of(where));
  }
  return "a verb is missing";
}

int run(int argc, char** argv) {
  CLI::App app("Generates, proves and tunes FlashAttention kernels.", "attune");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(attune_version()));
  app.footer(
      "Example:\n  attune check --heads 4 --seq 300 --head-dim 64 --causal\n`attune VERB --help` describes a verb. "
      "Exit status: 0 ok, 1 a check failed or nothing was found, 2 bad input, 3 another error.");
  std::vector<Verb> verbs = {make_run(app),    make_check(app),   make_show(app),    make_tune(app),
                             make_bench(app),  make_explain(app), make_compare(app), make_compile(app),
                             make_report(app), make_input(app),   make_devices(app), make_worker(app)};
  for (Verb& verb : make_db(app)) verbs.push_back(std::move(verb));

  const bool json = wants_json(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const std::string message =
        fmt::format("{}; `{} --help` lists what it takes", describe(error, innermost(app)), full_name(innermost(app)));
    return report_error("invalid_argument", message, json, kBadInput);
  }
  for (const Verb& verb : verbs) {
    if (!verb.app->parsed()) continue;
    try {
      return verb.execute();
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
  const int status = attune::cli::run(argc, argv);
  // A full disk or a closed pipe shows here; a document that was cut off is no success.
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    const std::string reason = errno != 0 ? std::strerror(errno) : "a part of it was lost";
    attune::cli::warn(fmt::format("standard output cannot be written: {}", reason));
    return attune::cli::kBadInput;
  }
  return status;
}
