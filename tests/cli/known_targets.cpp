// The defaults of GPUs that are not here, on the emulator.
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/cli/command.h"

using namespace attune::testing;

TEST_CASE("check: the defaults of GPUs by name are right on the emulator", "[emulator]") {
  for (const char* target : {"l4", "a6000", "gh200", "h100-nvl", "gb200", "b300", "rtx-pro-6000"}) {
    for (const char* problem : {"forward bf16 b1 hq2 sq320 d128 causal", "backward bf16 b1 hq2 sq200 d64 causal"}) {
      INFO(target << ": " << problem);
      const CommandResult result =
          run_attune({"check", "--device", "emulator", "--target", target, "--problem", problem, "--json"});
      INFO(result.err);
      CHECK(result.status == 0);
      CHECK(result.json().at("status") == "ok");
      CHECK(result.json().at("origin") == "default");
    }
  }
}
