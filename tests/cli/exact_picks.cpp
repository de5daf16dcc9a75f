// A way to what was tuned for this very problem, where what was measured for other shapes goes before it.
#include "generator/device/device_spec.h"
#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;

TEST_CASE("what a search without a GPU found runs by --config tuned, and else each line says why it does not",
          "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  {
    // Measured for a shape nearby, as presets are.
    attune::Measurement row =
        attune::test::example_measurement("forward bf16 b1 hq2 sq64 d64 causal", "sm80 q16 kv48 w1 st3");
    row.device = attune::find_device("a100").name;
    row.sm_count = attune::find_device("a100").sm_count;
    attune::TuningDatabase(folder.file("tuning.db")).append(row);
  }
  const std::string untuned = run_attune(words("check --config tuned" + kShape + kEmulator), environment).err;
  CHECK_THAT(untuned,
             ContainsSubstring("--config tuned: nothing was tuned for \"forward bf16 b1 hq2 sq48 d64 causal\"") &&
                 ContainsSubstring("`attune tune --problem "));
  const std::string tune = "tune --max-candidates 3 --budget 100" + kShape + kEmulator;
  const nlohmann::json document = run_attune(words(tune + " --json"), environment).json();
  const std::string best = document.at("best").at("config"), pick = document.at("pick").at("config");
  REQUIRE(best != pick);
  CHECK(document.at("pick").at("origin") != "exact");
  const std::string why =
      "what the cost model ranked first for this very problem, " + best + ", comes after all that was measured";
  CHECK_THAT(document.at("pick").at("origin_detail").get<std::string>(), ContainsSubstring(why));
  const CommandResult text = run_attune(words(tune), environment);
  CHECK_THAT(text.out, ContainsSubstring("\ncalls take     " + pick + ": ") && ContainsSubstring(why) &&
                           ContainsSubstring("`--config tuned`"));

  const CommandResult called = run_attune(words("check" + kShape + kEmulator), environment);
  CHECK(called.status == 0);
  CHECK_THAT(called.out, ContainsSubstring("\nconfig         " + pick + "\n") && ContainsSubstring(why) &&
                             ContainsSubstring("\nto tune it     attune tune --problem ") &&
                             ContainsSubstring("   (with an NVIDIA A100-SXM4-80GB)\n"));

  const nlohmann::json check =
      run_attune(words("check --config tuned --json" + kShape + kEmulator), environment).json();
  CHECK(check.at("status") == "ok");
  CHECK(check.at("config") == best);
  CHECK(check.at("origin") == "exact");
  REQUIRE(run_attune(words("input --heads 2 --seq 48 --head-dim 64 --output " + folder.file("qkv"))).status == 0);
  const nlohmann::json run = run_attune(words("run --causal --config tuned --check --json --input " +
                                              folder.file("qkv") + " --output " + folder.file("o") + kEmulator),
                                        environment)
                                 .json();
  CHECK(run.at("status") == "ok");
  CHECK(run.at("config") == best);
  CHECK(run.at("origin") == "exact");
  CHECK(run.at("origin_detail") == check.at("origin_detail"));
  const CommandResult source = run_attune(words("show source --config tuned --target a100" + kShape), environment);
  CHECK_THAT(source.out.substr(0, source.out.find('\n')), ContainsSubstring(best));
  const nlohmann::json explained = run_attune(words("explain --json --target a100" + kShape), environment).json();
  CHECK(explained.at("config") == pick);
  for (const nlohmann::json& candidate : explained.at("candidates")) {
    if (candidate.at("config") == best)
      CHECK_THAT(candidate.at("why_not").get<std::string>(),
                 ContainsSubstring("`--config tuned` takes the best of these"));
  }
}
