#pragma once

#include <cstddef>

namespace attune::test {

/// The *.cu files of tests/hostile, embedded when the tests are built: these also run where the source tree is not.
struct HostileTemplate {
  const char* name;  ///< of the file, without its extension
  const char* text;
};
extern const HostileTemplate kHostileTemplates[];
extern const std::size_t kHostileTemplateCount;

}  // namespace attune::test
