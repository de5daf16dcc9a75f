#include "runtime/cuda/compile_log.h"

#include "tests/catch.h"

using namespace attune;

TEST_CASE("a compile log tells registers, spills and stack", "[nogpu]") {
  KernelResources resources;
  read_compile_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     48 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers\n"
      "ptxas info    : Function properties for helper\n"
      "    16 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads",
      resources);
  CHECK(resources.registers == 168);
  CHECK(resources.stack_bytes == 64);
  CHECK(resources.spill_bytes == 48);
  CHECK(resources.advisories.empty());
}

TEST_CASE("numbers of a compile log that are too large for an int are the largest one", "[nogpu]") {
  KernelResources resources;
  const std::string line =
      "ptxas . 2147483647 bytes stack frame, 2147483647 bytes spill stores, 99999999999999999999 bytes spill loads\n";
  read_compile_log(line + line + "ptxas info    : Used 4294967296 registers\n", resources);
  CHECK(resources.stack_bytes == 2147483647);
  CHECK(resources.spill_bytes == 2147483647);
  CHECK(resources.registers == 2147483647);
}

TEST_CASE("lines about serialized or ignored instructions are advisories", "[nogpu]") {
  KernelResources resources;
  const std::string serialized =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
  const std::string ignored = "ptxas info    : setmaxnreg ignored to maintain minimum register requirements";
  read_compile_log(
      serialized + "\nptxas info    : Used 32 registers\n" + ignored + "\nkernel.cu(7): warning #177-D: unused",
      resources);
  REQUIRE(resources.advisories.size() == 2);
  CHECK(resources.advisories[0] == serialized);
  CHECK(resources.advisories[1] == ignored);

  // Numbers that only look like a code are none.
  read_compile_log("ptxas info    : Used 32 registers, 0xC7510 of something, ABC75100", resources);
  CHECK(resources.advisories.empty());
}

TEST_CASE("messages name templates instead of the rendered file", "[nogpu]") {
  const std::vector<TemplateLine> lines = {{"kernels/k", 3}, {"masks/causal", 1}, {"kernels/k", 5}};
  CHECK(name_templates("kernel.cu(2): error: x\n  kernel.cu(3): note: y", lines) ==
        "templates/masks/causal.cu(1): error: x\n  templates/kernels/k.cu(5): note: y");
  CHECK(name_templates("kernel.cu(4): beyond the end", lines) == "kernel.cu(4): beyond the end");
  CHECK(name_templates("nothing to name", lines) == "nothing to name");
}
