#pragma once

#include <cstdlib>

#include "tests/temporary_folder.h"

namespace attune::testing {

/// The fake NVRTC as the only one, and a cache of its own, from its making until the process ends. To be made before
/// the first call that compiles.
class FakeToolchain {
 public:
  FakeToolchain() {
    ::setenv("ATTUNE_NVRTC", ATTUNE_FAKE_NVRTC, 1);
    ::setenv("ATTUNE_CACHE_DIR", cache_.path().c_str(), 1);
    ::setenv("ATTUNE_DATABASE", (cache_.path() / "no.db").c_str(), 1);
  }

 private:
  TemporaryFolder cache_;
};

}  // namespace attune::testing
