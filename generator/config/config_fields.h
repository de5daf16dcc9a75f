#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config/kernel_config.h"

namespace attune {

/// How a value stands in a config's text.
enum class FieldForm {
  number,  ///< the word and digits: "q128"; a value that has a name: word=NAME ("parts=fill")
  flag,    ///< the word alone, for the other value than the default
  choice,  ///< word=NAME
  name,    ///< NAME alone: "ordered"
};

/// Everything that is to say of one field of KernelConfig. Text, parsing, help, the refusal of foreign words, the steps
/// of the search, the axes of the report and random configs are derived from it.
struct ConfigField {
  std::string_view word;  ///< of its form; of a NAME alone what an error calls it
  std::string_view key;   ///< the member's name: that of the field in JSON
  FieldForm form;
  int (*get)(const KernelConfig&);
  void (*set)(KernelConfig&, int);
  int standard;             ///< the default
  int least, most, step;    ///< well-formed values: from least to most in steps, and the default
  unsigned families;        ///< FamilySet of those that have this choice
  std::string_view title;   ///< of an axis in the report
  std::string_view help;    ///< what it decides, in a few words
  std::string_view move;    ///< fields that one step of the search may change together share this name
  bool always = false;      ///< written even at its default
  bool sets_apart = false;  ///< the opening of a search takes but one of the configs that agree in all of these
  std::string_view (*name)(int) = nullptr;  ///< of each value that has one, such as those of a choice; else empty
  unsigned decides_bits = 0;                ///< FamilySet of those whose results have other bits with another value

  bool is_default(const KernelConfig& config) const { return get(config) == standard; }
  /// The word as a config's text has it: "kv64", "even-tiles", "order=tile-major", "ordered".
  std::string text(const KernelConfig& config) const;
  /// Whether the value is one of least, least + step, ..., most, or the default.
  bool is_well_formed(const KernelConfig& config) const;
};

/// All fields, in the order of canonical_text(). A member whose word or default differs between families has a row for
/// each; their families are disjoint.
std::span<const ConfigField> config_fields();

/// A word of a config as this version writes it: that of an earlier one, if it has another name since ("split2" becomes
/// "query-warps2") or if it is gone and another takes its place ("nomax", later "lazy-max": "rescale8"), else the word
/// itself. Old words stay valid.
std::string current_word(std::string_view word);

/// The names of a choice, in their order.
std::vector<std::string_view> names_of(const ConfigField& field);

/// The field of this key that a config's family has. Throws Error(internal) if it has none.
const ConfigField& config_field(FamilyWord family, std::string_view key);

/// The sentences that refuse values which make no kernel, whatever the problem and the device: "st9: must be 1 to 4".
void check_well_formed(const KernelConfig& config, unsigned family, std::vector<std::string>* reasons);

/// The sentences that refuse fields which a family does not have: "kv-grad-per-query-head: forward_sm80 has no such
/// choice; ...".
void check_foreign_fields(const KernelConfig& config, unsigned family, std::string_view family_name,
                          std::vector<std::string>* reasons);

}  // namespace attune
