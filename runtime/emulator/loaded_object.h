#pragma once

#include <string>

namespace attune {

/// A shared object in this process, loaded from bytes in memory: what was verified is what runs, whatever happens to
/// files. Unloaded at its end.
class LoadedObject {
 public:
  explicit LoadedObject(const std::string& bytes);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// The address of a symbol; null if there is none, or nothing was loaded.
  void* find(const char* symbol) const;
  /// Why nothing was loaded; empty otherwise.
  const std::string& why_not() const { return why_not_; }

 private:
  int descriptor_ = -1;
  void* handle_ = nullptr;
  std::string why_not_;
};

}  // namespace attune
