// One main for all test programs. `test_room "[gpu]"` without a GPU, or "[nvrtc]" without NVRTC, is skipped with exit status 77 and
// the reason, never passed over in silence.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <string>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"

namespace {
constexpr int kSkipped = 77;

// Empty if tests of this label can run here.
std::string why_skipped(const std::string& filter) {
  std::string why;
  if (filter.find("[gpu]") != std::string::npos && filter.find("~[gpu]") == std::string::npos) {
    if (attune::list_cuda_devices(&why).empty()) return why.empty() ? "no GPU" : why;
  }
  if (filter.find("[nvrtc]") != std::string::npos && filter.find("~[nvrtc]") == std::string::npos) {
    try {
      attune::nvrtc_identity();
    } catch (const attune::Error& error) {
      return error.what();
    }
  }
  return {};
}
}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string why = why_skipped(argv[i]);
    if (!why.empty()) {
      std::printf("skipped: %s\n", why.c_str());
      return kSkipped;
    }
  }
  const int failed = Catch::Session().run(argc, argv);
  return failed < 255 ? failed : 255;
}
