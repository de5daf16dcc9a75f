// `bench --profile`: one launch of each kernel, and the line of ncu.
#include "tests/catch.h"
#include "tests/cli/command.h"

using namespace attune::testing;

TEST_CASE("bench --profile launches the kernels of a config", "[emulator]") {
  const std::vector<std::string> arguments =
      words("bench --profile --pass backward --seq 64 --head-dim 32 --device emulator --target a100");
  const CommandResult result = run_attune(arguments, kNoGpu);
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("launched       attune_backward_delta\n") &&
                             ContainsSubstring("to profile     take a GPU"));
  CHECK(result.out.find("median") == std::string::npos);
  std::vector<std::string> as_json = arguments;
  as_json.push_back("--json");
  const nlohmann::json document = run_attune(as_json, kNoGpu).json();
  CHECK(document.at("launches").size() >= 2);
  CHECK_FALSE(document.contains("ncu"));
}

TEST_CASE("bench --profile refuses what it cannot look at", "[nogpu]") {
  const auto refused = [](const std::string& more, const std::string& part) {
    const CommandResult result =
        run_attune(words("bench --profile --seq 64 --head-dim 32 --device emulator " + more), kNoGpu);
    INFO(result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  refused("--algorithm fa2", "--profile launches a config's kernels");
  refused("--format csv", "--profile makes no table");
}

TEST_CASE("bench --profile on a GPU prints a line for ncu", "[gpu]") {
  const CommandResult result =
      run_attune(words("bench --profile --batch 2 --heads 4 --seq 512 --head-dim 64 --causal"));
  INFO(result.err);
  REQUIRE(result.status == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("ncu --set full --kernel-name 'regex:^(attune_forward") &&
                 ContainsSubstring("attune bench --profile --problem \"forward bf16 b2 hq4 sq512 d64 causal\""));
}
