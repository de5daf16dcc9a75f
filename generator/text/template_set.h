#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

namespace attune {

/// Named template texts ("kernels/forward_sm80" -> text). Immutable after construction.
class TemplateSet {
 public:
  explicit TemplateSet(std::map<std::string, std::string> texts) : texts_(std::move(texts)) {}

  /// The texts that were built into the library.
  static const TemplateSet& embedded();

  const std::string* find(const std::string& name) const;  ///< nullptr if there is none
  /// 16 hexadecimal digits of XXH3-64 over the names and texts of a template and of all that it may include, so that
  /// a change elsewhere leaves it as it is. In an included name, ${value} stands for what `known` says of it, otherwise
  /// for any text without a '/'. Names that have no template count as they are.
  std::string hash_of(const std::string& root, const std::map<std::string, std::string>& known = {}) const;
  /// The same of several templates together.
  std::string hash_of_all(const std::set<std::string>& roots,
                          const std::map<std::string, std::string>& known = {}) const;
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::string> texts_;
};

}  // namespace attune
