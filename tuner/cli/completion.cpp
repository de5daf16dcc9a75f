#include "tuner/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/verb.h"

namespace attune::cli {
namespace {

using Description = CommandLine::Description;

// Every verb with the words that lead to it: "", " db", " db list".
void list_paths(const Description& verb, const std::string& path,
                std::vector<std::pair<std::string, const Description*>>* paths) {
  paths->emplace_back(path, &verb);
  for (const Description& below : verb.verbs) list_paths(below, path + " " + below.name, paths);
}

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

// How a shell is told what may come next.
struct Shell {
  const char* head;   // up to a loop over the words before the current one
  const char* words;  // offers these
  const char* files;
  const char* nothing;  // a number, say
};

constexpr Shell kBash = {
    "# bash completion of attune: source it, or keep it as share/bash-completion/completions/attune\n"
    "_attune() {\n"
    "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= word\n"
    "  COMPREPLY=()\n"
    "  # --flag=value is three words here.\n"
    "  if [ \"$current\" = = ]; then current=; elif [ \"$previous\" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; "
    "fi\n"
    "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n",
    "COMPREPLY=($(compgen -W '{}' -- \"$current\"))", "COMPREPLY=($(compgen -f -- \"$current\"))",
    "compopt +o default 2>/dev/null"};

constexpr Shell kZsh = {
    "#compdef attune\n"
    "# zsh completion of attune: keep it as _attune in a folder of $fpath, or source it\n"
    "_attune() {\n"
    "  local current=${words[CURRENT]} previous=${words[CURRENT-1]} verb= word\n"
    "  if [[ $current == --*=* ]]; then previous=${current%%=*}; current=${current#*=}; compset -P 1 '*='; fi\n"
    "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n",
    "compadd -- {}", "_files", ":"};

std::string offer(const Shell& shell, const std::vector<std::string>& words) {
  return words.empty() ? shell.nothing : fmt::format(fmt::runtime(shell.words), fmt::join(words, " "));
}

bool is_flag(const Description::Option& option) { return option.name.starts_with("--"); }

// bash and zsh differ only in how words come in and go out.
std::string shell_function(const Description& program, const Shell& shell) {
  std::vector<std::pair<std::string, const Description*>> paths;
  list_paths(program, "", &paths);
  std::string text = std::string(shell.head) + "    case \"$verb $word\" in\n";
  for (const auto& [path, verb] : paths) {
    if (!path.empty()) text += fmt::format("      {}) verb={} ;;\n", shell_quoted(path), shell_quoted(path));
  }
  text += "    esac\n  done\n  case \"$verb:$previous\" in\n";
  for (const auto& [path, verb] : paths) {
    for (const Description::Option& option : verb->options) {
      if (!is_flag(option) || !option.takes_value) continue;
      const bool text_of_any_kind = option.words.empty() && !option.is_number;
      text += fmt::format("    {}) {} ; return ;;\n", shell_quoted(path + ":" + option.name),
                          text_of_any_kind ? shell.files : offer(shell, option.words));
    }
  }
  text += "  esac\n  case \"$verb\" in\n";
  for (const auto& [path, verb] : paths) {
    std::vector<std::string> words, flags;
    bool takes_files = false;
    for (const Description& below : verb->verbs) words.push_back(below.name);
    for (const Description::Option& option : verb->options) {
      if (is_flag(option)) {
        flags.push_back(option.name);
      } else {
        words.insert(words.end(), option.words.begin(), option.words.end());
        takes_files = takes_files || option.words.empty();
      }
    }
    if (takes_files) {
      text += fmt::format("    {}) case \"$current\" in -*) {} ;; *) {} ;; esac ;;\n", shell_quoted(path),
                          offer(shell, flags), shell.files);
    } else {
      words.insert(words.end(), flags.begin(), flags.end());
      text += fmt::format("    {}) {} ;;\n", shell_quoted(path), offer(shell, words));
    }
  }
  return text + "  esac\n";
}

std::string bash_script(const Description& program) {
  return shell_function(program, kBash) + "}\ncomplete -o filenames -F _attune attune\n";
}

std::string zsh_script(const Description& program) {
  return shell_function(program, kZsh) + "}\ncompdef _attune attune\n";
}

// What fish is told of an option's value.
std::string value_of(const Description::Option& option) {
  if (!option.words.empty())
    return fmt::format(" -x -a {}", shell_quoted(fmt::format("{}", fmt::join(option.words, " "))));
  if (!option.takes_value) return "";
  return option.is_number ? " -x" : " -r -F";
}

std::string fish_script(const Description& program) {
  std::vector<std::pair<std::string, const Description*>> paths;
  list_paths(program, "", &paths);
  std::string text =
      "# fish completion of attune: keep it as ~/.config/fish/completions/attune.fish\n"
      "complete -c attune -f\n";
  for (const auto& [path, verb] : paths) {
    std::string condition;
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find(' ', at + 1), path.size());
      condition += fmt::format("{}__fish_seen_subcommand_from{}", at == 0 ? "" : "; and ", path.substr(at, end - at));
      at = end;
    }
    std::vector<std::string> names;
    for (const Description& below : verb->verbs) names.push_back(below.name);
    if (!names.empty()) {
      condition +=
          fmt::format("{}not __fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ", fmt::join(names, " "));
    }
    for (const Description& below : verb->verbs) {
      text += fmt::format("complete -c attune -n {} -f -a {} -d {}\n", shell_quoted(condition), below.name,
                          shell_quoted(below.help));
    }
    for (const Description::Option& option : verb->options) {
      if (is_flag(option)) {
        text += fmt::format("complete -c attune -n {} -l {}{} -d {}\n", shell_quoted(condition), option.name.substr(2),
                            value_of(option), shell_quoted(option.help));
      } else if (!option.words.empty()) {
        text += fmt::format("complete -c attune -n {} -f -a {}\n", shell_quoted(condition),
                            shell_quoted(fmt::format("{}", fmt::join(option.words, " "))));
      } else {
        text += fmt::format("complete -c attune -n {} -F\n", shell_quoted(condition));
      }
    }
  }
  return text;
}

struct CompletionOptions {
  OutputOptions output;
  std::string shell;
};

}  // namespace

std::string completion_script(const Description& program, const std::string& shell) {
  if (shell == "zsh") return zsh_script(program);
  return shell == "fish" ? fish_script(program) : bash_script(program);
}

Verb make_completion(CommandLine& command) {
  auto options = std::make_shared<CompletionOptions>();
  CommandLine* verb =
      add_verb(command, "completion", "print the script with which a shell completes verbs, flags and their values",
               "source <(attune completion bash)\nattune completion fish > ~/.config/fish/completions/attune.fish");
  verb->add_option("shell", options->shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  options->output.add_to(*verb);
  return {verb, [options, &command] {
            const std::string script = completion_script(command.describe(), options->shell);
            if (options->output.json) {
              print_json({{"status", "ok"}, {"shell", options->shell}, {"script", script}});
            } else {
              print(script);
            }
            return int{kOk};
          }};
}

}  // namespace attune::cli
