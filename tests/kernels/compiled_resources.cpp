#include "tests/kernels/compiled_resources.h"

#include <map>
#include <string>
#include <utility>

#include "runtime/cuda/nvrtc_compiler.h"

namespace attune::tests {

const KernelResources& compiled_resources(const KernelLaunch& launch) {
  static std::map<std::pair<std::string, std::string>, KernelResources> known;
  const std::pair key(launch.arch, launch.source_hash);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = compile_with_nvrtc(launch).resources;
}

}  // namespace attune::tests
