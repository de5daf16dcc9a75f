// What keeps a GPU's queue full while others are timed.
#include "tuner/trial/default_forward.h"

#include "generator/generate.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("what fills the queue does not split its keys: a large batch's results would fit no workspace",
          "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq2 sq1 skv1024 d64");
  const KernelConfig standard = default_config(problem, device->spec());
  REQUIRE(standard.key_parts == kFillParts);
  AttentionRuntime runtime(device);
  DefaultForward forward(device, runtime, problem);
  REQUIRE(forward.prepared() == nullptr);
  forward.prepare();
  KernelConfig whole = standard;
  whole.key_parts = 1;
  CHECK(forward.prepared()->plan.config == whole);
  AttentionProblem large = problem;
  large.batch = 1 << 20;
  CHECK(forward.prepared()->plan.workspace_bytes_of(large) <= forward.workspace().bytes());
  CHECK(forward.prepared()->plan.buffers.empty());
}
