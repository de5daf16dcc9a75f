#include "generator/config/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/error.h"
#include "generator/families/kernel_family.h"

namespace attune {

std::string ConfigField::text(const KernelConfig& config) const {
  std::string text(word);
  switch (form) {
    case FieldForm::number:
      if (const std::string_view called = name == nullptr ? std::string_view() : name(get(config)); !called.empty())
        text.append("=").append(called);
      else
        text += std::to_string(get(config));
      break;
    case FieldForm::flag:
      break;
    case FieldForm::choice:
      text += '=';
      text += name(get(config));
      break;
    case FieldForm::name:
      text = name(get(config));
      break;
  }
  return text;
}

bool ConfigField::is_well_formed(const KernelConfig& config) const {
  const int value = get(config);
  return value == standard || (value >= least && value <= most && (step == 1 || (value - least) % step == 0));
}

std::vector<std::string_view> names_of(const ConfigField& field) {
  std::vector<std::string_view> names;
  if (field.form != FieldForm::choice && field.form != FieldForm::name) return names;
  for (int i = 0; !field.name(i).empty(); ++i) names.push_back(field.name(i));
  return names;
}

const ConfigField& config_field(FamilyWord family, std::string_view key) {
  const unsigned families = families_of(family);
  for (const ConfigField& field : config_fields()) {
    if (field.key == key && (field.families & families) != 0) return field;
  }
  throw Error(ErrorCode::internal, fmt::format("{} has no config field {}", to_string(family), key));
}

void check_well_formed(const KernelConfig& config, unsigned family, std::vector<std::string>* reasons) {
  for (const ConfigField& field : config_fields()) {
    if ((field.families & family) == 0 || field.is_well_formed(config)) continue;
    int least = field.least;
    std::string values;  // those with names come first
    for (; field.name != nullptr && !field.name(least).empty(); ++least)
      values += fmt::format("{}={}, ", field.word, field.name(least));
    values += field.step > 1 ? fmt::format("a multiple of {} from {} to {}", field.step, least, field.most)
                             : fmt::format("{} to {}", least, field.most);
    reasons->push_back(fmt::format("{}: must be {}", field.text(config), values));
  }
}

void check_foreign_fields(const KernelConfig& config, unsigned family, std::string_view family_name,
                          std::vector<std::string>* reasons) {
  // Where a member has several rows, that of the config's word counts.
  const unsigned of_word = families_of(config.family);
  const auto counts = [&](const ConfigField& field) {
    return (field.families & of_word) != 0 ||
           std::none_of(config_fields().begin(), config_fields().end(), [&](const ConfigField& other) {
             return other.key == field.key && (other.families & of_word) != 0;
           });
  };
  for (const ConfigField& field : config_fields()) {
    // The cheapest first: each call of the library asks.
    if ((field.families & family) == 0 && !field.is_default(config) && counts(field))
      reasons->push_back(fmt::format("{}: {} has no such choice; leave the word out", field.text(config), family_name));
  }
}

}  // namespace attune
