#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace attune::testing {

/// A variable of the environment that is as it was before when this ends. Programs that a test starts inherit it.
class ScopedVariable {
 public:
  /// Leaves the value as it is.
  explicit ScopedVariable(const char* name) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
  }
  /// Sets a value; an empty one takes the variable out of the environment.
  ScopedVariable(const char* name, const std::string& value) : ScopedVariable(name) {
    value.empty() ? unset() : set(value);
  }
  ~ScopedVariable() { before_ ? set(*before_) : unset(); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

  void set(const std::string& value) { ::setenv(name_, value.c_str(), 1); }
  void unset() { ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace attune::testing
