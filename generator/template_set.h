#pragma once

#include <map>
#include <string>

namespace attune {

/// Named template texts ("kernels/forward_sm80" -> text) and a hash over all of them. Immutable after construction.
class TemplateSet {
 public:
  explicit TemplateSet(std::map<std::string, std::string> texts);

  /// The texts that were built into the library.
  static const TemplateSet& embedded();

  const std::string* find(const std::string& name) const;  ///< nullptr if there is none
  const std::string& hash() const { return hash_; }        ///< 16 hexadecimal digits of XXH3-64 over names and texts
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::string> texts_;
  std::string hash_;
};

}  // namespace attune
