#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "attune.h"

namespace attune::testing {

/// What a call did, kept without memory.
struct Outcome {
  bool succeeded = false;
  bool told_memory = false;
  char text[400] = {};

  static Outcome success() { return {true, false, {}}; }
  static Outcome memory() { return {false, true, {}}; }
  static Outcome other(const char* text) {
    Outcome made;
    std::snprintf(made.text, sizeof(made.text), "%s", text);
    return made;
  }
};

inline Outcome outcome(attune_status status) {
  if (status == ATTUNE_OK) return Outcome::success();
  const char* const text = attune_last_error();
  const bool told = std::strstr(text, "no memory is left on the host") != nullptr;
  return status == ATTUNE_ERROR_INTERNAL && told ? Outcome::memory() : Outcome::other(text);
}

template <typename Body>
Outcome outcome_of(const Body& body) {
  try {
    body();
    return Outcome::success();
  } catch (const std::bad_alloc&) {
    return Outcome::memory();
  } catch (const std::exception& error) {
    return Outcome::other(error.what());
  }
}

}  // namespace attune::testing
