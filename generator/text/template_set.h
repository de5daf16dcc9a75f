#pragma once

#include <map>
#include <string>
#include <utility>

namespace attune {

/// Named template texts ("kernels/forward_sm80" -> text). Immutable after construction.
class TemplateSet {
 public:
  explicit TemplateSet(std::map<std::string, std::string> texts) : texts_(std::move(texts)) {}

  /// The texts that were built into the library.
  static const TemplateSet& embedded();
  /// No texts: what is rendered of it, this very object, is a launch without a source, in a hundredth of the time.
  static const TemplateSet& none();

  const std::string* find(const std::string& name) const;  ///< nullptr if there is none
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::string> texts_;
};

}  // namespace attune
