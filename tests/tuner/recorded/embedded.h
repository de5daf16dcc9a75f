#pragma once

#include <cstddef>

namespace attune::test {

/// The texts of the *.tsv files of tests/tuner/recorded, embedded when the tests are built.
extern const char* const kRecordings[];
extern const std::size_t kRecordingCount;

}  // namespace attune::test
