#pragma once

#include <vector>

namespace attune::test {

/// The texts of the *.tsv files of tests/tuner/recorded and of its folder `joint`, embedded when the tests are built.
extern const std::vector<const char*> kRecordings, kJointRecordings;

}  // namespace attune::test
