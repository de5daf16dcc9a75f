#include "generator/config/kernel_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "generator/config/config_fields.h"
#include "generator/error.h"
#include "generator/families/kernel_family.h"

namespace attune {
namespace {

// Digits only: a sign or a blank is not part of any word.
std::optional<int> parse_digits(std::string_view text) {
  int value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int> named(const ConfigField& field, std::string_view name) {
  const std::vector<std::string_view> names = names_of(field);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<int>(found - names.begin());
}

// The value of a number that has a name, by that name.
std::optional<int> named_number(const ConfigField& field, std::string_view name) {
  if (field.name == nullptr || name.empty()) return std::nullopt;
  for (int value = field.least; value <= field.most; value += field.step) {
    if (field.name(value) == name) return value;
  }
  return std::nullopt;
}

// The value that a word gives a field; nothing if it is not a word of it.
std::optional<int> value_of(const ConfigField& field, std::string_view word, std::string_view text) {
  switch (field.form) {
    case FieldForm::number:
      if (!word.starts_with(field.word)) return std::nullopt;
      word.remove_prefix(field.word.size());
      return word.starts_with('=') ? named_number(field, word.substr(1)) : parse_digits(word);
    case FieldForm::flag:
      return word == field.word ? std::optional(field.standard == 0 ? 1 : 0) : std::nullopt;
    case FieldForm::name:
      return named(field, word);
    case FieldForm::choice: {
      if (!word.starts_with(field.word) || word.substr(field.word.size()).substr(0, 1) != "=") return std::nullopt;
      const auto value = named(field, word.substr(field.word.size() + 1));
      if (!value) {
        refuse(fmt::format("config '{}': '{}' is no {}; known: {}", text, word, field.title,
                           fmt::join(names_of(field), ", ")));
      }
      return value;
    }
  }
  return std::nullopt;
}

std::string known_words(unsigned families) {
  std::string words;
  for (const ConfigField& field : config_fields()) {
    if ((field.families & families) == 0) continue;
    std::string word(field.word);
    switch (field.form) {
      case FieldForm::number:
        word += "N";
        for (int value = field.least; field.name != nullptr && value <= field.most; value += field.step) {
          if (!field.name(value).empty()) word += fmt::format("|{}={}", field.word, field.name(value));
        }
        break;
      case FieldForm::flag:
        break;
      case FieldForm::choice:
        word += fmt::format("={}", fmt::join(names_of(field), "|"));
        break;
      case FieldForm::name:
        word = fmt::format("{}", fmt::join(names_of(field), "|"));
        break;
    }
    words += fmt::format("{}{} ({})", words.empty() ? "" : ", ", word, field.help);
  }
  return words;
}

}  // namespace

KernelConfig default_fields(FamilyWord family) {
  KernelConfig config;
  config.family = family;
  const unsigned families = families_of(family);
  for (const ConfigField& field : config_fields()) {
    if ((field.families & families) != 0) field.set(config, field.standard);
  }
  return config;
}

std::string canonical_text(const KernelConfig& config) {
  const unsigned families = families_of(config.family);
  std::string text(to_string(config.family));
  for (const ConfigField& field : config_fields()) {
    if ((field.families & families) == 0 || (!field.always && field.is_default(config))) continue;
    text += ' ';
    text += field.text(config);
  }
  return text;
}

KernelConfig parse_config(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpace, end);
  }
  if (words.empty()) refuse("an empty config text; write for example 'sm80 q128 kv64 w4 st2'");
  const std::optional<FamilyWord> family = parse_family_word(words.front());
  if (!family) {
    refuse(fmt::format("config '{}': begins with '{}' instead of a kernel family; known families: {}", text,
                       words.front(), fmt::join(family_words(), ", ")));
  }
  KernelConfig config = default_fields(*family);
  const unsigned families = families_of(*family);
  std::set<std::string_view> seen;
  for (const std::string_view written : std::span(words).subspan(1)) {
    const std::string word = current_word(written);
    bool understood = false;
    for (const ConfigField& field : config_fields()) {
      if ((field.families & families) == 0) continue;
      const std::optional<int> value = value_of(field, word, text);
      if (!value) continue;
      if (!seen.insert(field.word).second) {
        refuse(fmt::format("config '{}': '{}' sets '{}' a second time; leave one of the two words", text, written,
                           field.word));
      }
      field.set(config, *value);
      understood = true;
      break;
    }
    if (!understood) {
      refuse(fmt::format("config '{}': does not understand '{}'; known words of {}: {}", text, written,
                         to_string(*family), known_words(families)));
    }
  }
  return config;
}

}  // namespace attune
