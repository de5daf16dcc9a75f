#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generator/error.h"

/// One target: reads any bytes as one format. An Error is an answer like any other; everything else that leaves it, and
/// what `require` refuses, is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attune::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// Whether it ended without an Error.
template <typename Action>
bool accepts(Action action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    require(*error.what() != '\0');
    return false;
  }
}

}  // namespace attune::fuzz
