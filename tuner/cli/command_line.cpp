#include "tuner/cli/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "tuner/cli/help_text.h"
#include "tuner/cli/suggestion.h"

namespace attune::cli {
namespace {

// Refuses an empty text: `--config "$UNSET"` is a mistake, not an omission.
CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return text.empty() ? "must not be empty" : ""; }, "");
}

// A decimal number that fits T. CLI11 alone would take -1 as 2^64 - 1, 99999999999999999999 as 2^63 - 1 and 010 as 8.
template <typename T>
CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        T value{};
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc::result_out_of_range) return text + " is too large a number";
        if (error != std::errc{} || stop != end)
          return text + " is not a whole number" + (std::is_signed_v<T> ? "" : " of at least 0");
        text = std::to_string(value);
        return "";
      },
      "");
}

template <typename T>
struct ValueOf {
  using Type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

const CLI::App& innermost(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed = app.get_subcommands([](const CLI::App* verb) { return verb->parsed(); });
  return parsed.empty() ? app : innermost(*parsed.back());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? fmt::format("{} {}", full_name(*app.get_parent()), app.get_name()) : app.get_name();
}

std::vector<const CLI::App*> verbs_below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

std::vector<std::string> names_of_verbs(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs_below(app)) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string unknown_flag(const std::string& word, const CLI::App& where) {
  const std::string flag = word.substr(0, word.find('='));
  return fmt::format("unknown flag {}{}", flag, did_you_mean(flag, flags_of(where)));
}

// What CLI11 says, but that a missing verb is told from a mistyped one, and that a mistyped word is told from its like.
std::string explain_refusal(const CLI::ParseError& error, const CLI::App& where) {
  const std::vector<std::string> unread = where.remaining();
  if (where.get_require_subcommand_min() == 0) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
      for (const std::string& word : unread) {
        if (word.starts_with("--")) return unknown_flag(word, where);
      }
    }
    return error.what();
  }
  for (const std::string& word : unread) {
    if (word == "--json") continue;  // every verb takes it
    if (word.starts_with('-')) return unknown_flag(word, where);
    const std::vector<std::string> verbs = names_of_verbs(where);
    return fmt::format("unknown verb '{}'{}; verbs: {}", word, did_you_mean(word, verbs), fmt::join(verbs, ", "));
  }
  return fmt::format("a verb is missing: {}", fmt::join(names_of_verbs(where), ", "));
}

// The verb that the first words name, among others that are not read yet.
const CLI::App& verb_of(const CLI::App& program, int argc, const char* const* argv) {
  const CLI::App* found = &program;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto below = found->get_subcommands([&](const CLI::App* verb) { return verb->get_name() == word; });
    if (below.empty()) break;
    found = below.front();
  }
  return *found;
}

// "-heads": CLI11 would read it as -h and further letters. The only flag of one dash is -h.
bool is_long_with_one_dash(std::string_view word) {
  return word.size() > 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

}  // namespace

DeclaredOption DeclaredOption::required() {
  option_->required();
  return *this;
}

DeclaredOption DeclaredOption::group(const std::string& title) {
  option_->group(title);
  return *this;
}

DeclaredOption DeclaredOption::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::Validator(
      [words](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return "";
        return fmt::format("{} not in {{{}}}{}", text, fmt::join(words, ","), did_you_mean(text, words));
      },
      fmt::format("{{{}}}", fmt::join(words, ","))));
  return suggest(words);
}

DeclaredOption DeclaredOption::suggest(const std::vector<std::string>& words) {
  (*words_)[option_] = words;
  return *this;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : own_(std::make_unique<CLI::App>(description, name)),
      app_(own_.get()),
      words_(std::make_shared<WordsOfOptions>()) {}

CommandLine::CommandLine(CLI::App* app, std::shared_ptr<WordsOfOptions> words) : app_(app), words_(std::move(words)) {}

CommandLine::~CommandLine() = default;

CommandLine* CommandLine::add_verb(const std::string& name, const std::string& description) {
  return verbs_.emplace_back(new CommandLine(app_->add_subcommand(name, description), words_)).get();
}

void CommandLine::require_verb() { app_->require_subcommand(1); }
void CommandLine::mask_probabilities() { app_->group(""); }
void CommandLine::set_footer(const std::string& text) { app_->footer(text); }
void CommandLine::set_version(const std::string& text) { app_->set_version_flag("--version", text); }
bool CommandLine::parsed() const { return app_->parsed(); }

template <typename T>
DeclaredOption CommandLine::add_option(const std::string& name, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  using Value = typename ValueOf<T>::Type;
  if constexpr (!std::is_arithmetic_v<Value>) option->check(not_empty());
  if constexpr (std::is_integral_v<Value>) option->transform(whole_number<Value>());
  return {option, words_.get()};
}

template DeclaredOption CommandLine::add_option(const std::string&, std::string&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, double&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, int&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::int64_t&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::uint64_t&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::optional<double>&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::optional<int>&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template DeclaredOption CommandLine::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);

DeclaredOption CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  return {app_->add_flag(name, value, help), words_.get()};
}

namespace {

// By CLI11's name of its type.
bool is_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

}  // namespace

CommandLine::Description CommandLine::describe() const {
  Description made{app_->get_name(), app_->get_description(), {}, {}};
  for (const CLI::Option* option : static_cast<const CLI::App*>(app_)->get_options()) {
    const auto words = words_->find(option);
    const bool named = !option->get_lnames().empty();
    made.options.push_back({named ? "--" + option->get_lnames().front() : option->get_name(), option->get_description(),
                            option->get_items_expected_max() > 0, is_number(*option),
                            words == words_->end() ? std::vector<std::string>() : words->second});
  }
  for (const auto& verb : verbs_) {
    if (!verb->app_->get_group().empty()) made.verbs.push_back(verb->describe());
  }
  return made;
}

// Of the verb that was read.
std::string CommandLine::help() const { return wrapped_help(app_->help(), help_columns_); }

CommandLine::Outcome CommandLine::parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view word = argv[i];
    // "--config=$UNSET": CLI11 would take the next word for its value.
    const bool no_value = word.starts_with("--") && word.ends_with('=');
    if (!no_value && !is_long_with_one_dash(word)) continue;
    const CLI::App& where = verb_of(*app_, argc, argv);
    return {Outcome::Kind::refused,
            fmt::format("{}; `{} --help` lists what it takes",
                        no_value ? fmt::format("{} must not be empty", word) : unknown_flag(argv[i], where),
                        full_name(where)),
            ""};
  }
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::CallForVersion& asked) {
    return {Outcome::Kind::asked, std::string(asked.what()) + "\n", ""};
  } catch (const CLI::Success&) {
    const CLI::App& where = innermost(*app_);
    const std::vector<std::string> unread = where.remaining();
    const bool unknown = std::any_of(unread.begin(), unread.end(), [](const auto& word) { return word != "--json"; });
    if (where.get_require_subcommand_min() > 0 && unknown)
      return {Outcome::Kind::refused, explain_refusal(CLI::ExtrasError(unread), where), ""};
    return {Outcome::Kind::asked, help(), ""};
  } catch (const CLI::ParseError& error) {
    const CLI::App& where = innermost(*app_);
    const bool bare = where.get_require_subcommand_min() > 0 && where.remaining().empty();
    return {Outcome::Kind::refused,
            fmt::format("{}; `{} --help` lists what it takes", explain_refusal(error, where), full_name(where)),
            bare ? help() : ""};
  }
}

}  // namespace attune::cli
