#pragma once

#include <string>

#include "generator/error.h"
#include "tests/catch.h"

namespace attune::testing {

/// What the Error of this code says that `call` ends with; the test fails if it ends otherwise.
template <typename Call>
std::string error_of(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

}  // namespace attune::testing
