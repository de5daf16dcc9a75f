#pragma once

#include <vector>

namespace attune::test {

/// The texts of the *.tsv files of tests/tuner/recorded and of its folders, embedded when the tests are built.
extern const std::vector<const char*> kRecordings, kJointRecordings, kBackwardRecordings;

}  // namespace attune::test
