#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attune::cli {

/// The words that options take, where they are few.
using WordsOfOptions = std::map<const CLI::Option*, std::vector<std::string>>;

/// An option that has been declared, to say more about it.
class DeclaredOption {
 public:
  DeclaredOption(CLI::Option* option, WordsOfOptions* words) : option_(option), words_(words) {}
  DeclaredOption required();
  DeclaredOption group(const std::string& title);
  /// Refuses every other word, and says which one was probably meant.
  DeclaredOption one_of(const std::vector<std::string>& words);
  /// Offers words to a shell that completes; the verb itself judges what is given.
  DeclaredOption suggest(const std::vector<std::string>& words);

 private:
  CLI::Option* option_;
  WordsOfOptions* words_;
};

/// What the program, or one of its verbs, takes on the command line. CLI11 parses it; its headers, which take a
/// compiler longer than the rest of a verb, are read by command_line.cpp alone.
class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// A verb below this one; lives as long as this does.
  CommandLine* add_verb(const std::string& name, const std::string& description);
  void require_verb();
  void mask_probabilities();
  void set_footer(const std::string& text);
  void set_version(const std::string& text);
  /// Help has lines of at most so many columns, where words allow it.
  void set_help_columns(std::size_t columns) { help_columns_ = columns; }

  /// T: std::string (must not be empty), std::vector<std::string>, double, int, std::int64_t, std::uint64_t, or
  /// std::optional of a number. Whole numbers are decimal and must fit.
  template <typename T>
  DeclaredOption add_option(const std::string& name, T& value, const std::string& help);
  DeclaredOption add_flag(const std::string& name, bool& value, const std::string& help);

  struct Outcome {
    enum class Kind { parsed, asked, refused };  ///< asked: for help or the version
    Kind kind = Kind::parsed;
    std::string text;  ///< what was asked for, or what is wrong and where to read on
    std::string help;  ///< of a program or verb that was called without a word; else empty
  };
  Outcome parse(int argc, const char* const* argv);
  /// Whether this verb was among what parse() read.
  bool parsed() const;

  /// What it takes and its verbs, without hidden ones.
  struct Description {
    struct Option {
      std::string name, help;  ///< the name with its dashes; without them for a position
      bool takes_value = false, is_number = false;
      std::vector<std::string> words;
    };
    std::string name, help;
    std::vector<Option> options;
    std::vector<Description> verbs;
  };
  Description describe() const;

 private:
  CommandLine(CLI::App* app, std::shared_ptr<WordsOfOptions> words);

  std::string help() const;

  std::unique_ptr<CLI::App> own_;  // of the program
  std::size_t help_columns_ = 100;
  CLI::App* app_;
  std::shared_ptr<WordsOfOptions> words_;  // one for the program and all its verbs
  std::vector<std::unique_ptr<CommandLine>> verbs_;
};

}  // namespace attune::cli
