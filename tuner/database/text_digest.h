#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace attune {

/// A hash of a list of texts, each with its length, so that no two lists have the same bytes: XXH3-128. It tells what
/// differs by accident, not what somebody has forged.
class TextDigest {
 public:
  TextDigest();
  ~TextDigest();
  TextDigest& add(std::string_view text);
  TextDigest& add(long long number);
  std::string text() const;  ///< 32 hexadecimal digits, of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
