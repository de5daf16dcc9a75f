// Which GPU of which node this is, as NVML tells it.
#include "runtime/system/node_gpu.h"

#include <unistd.h>

#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("a GPU says which one of which node it is and how it is set", "[nogpu]") {
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof(host) - 1) == 0);
  // Its memory has no clock of applications: the greatest stands for it.
  CHECK(find_node_gpu(0) == NodeGpu{host, "GPU-fake-1", "580.159.04", 650, 1755, 3201});
  // By the bus, which CUDA and NVML number alike.
  CHECK(find_node_gpu(1).gpu_uuid == "GPU-fake-2");
  CHECK(open_cuda_device(1)->node_gpu() == find_node_gpu(1));
  // A GPU that is not there has a host all the same.
  CHECK(find_node_gpu(99) == NodeGpu{host, "", "", 0, 0, 0});
}
