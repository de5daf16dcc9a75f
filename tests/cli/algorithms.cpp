// --algorithm of `show`, `check` and `bench`: the ladder.
#include <filesystem>
#include <regex>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/source_folder.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

TEST_CASE("show source of an algorithm prints its kernels, one of them with --launch", "[nogpu]") {
  const std::string problem = " --seq 100 --head-dim 64 --target a100";
  const CommandResult all = run_attune(words("show source --algorithm standard" + problem), kNoGpu);
  REQUIRE(all.status == 0);
  std::string one_by_one;
  for (const std::string launch : {"1", "2", "3"}) {
    const CommandResult one =
        run_attune(words("show source --algorithm standard --launch " + launch + problem), kNoGpu);
    REQUIRE(one.status == 0);
    CHECK(one.out.rfind("// attune standard forward bf16 d64", 0) == 0);
    CHECK(one.out.find("__global__") == one.out.rfind("__global__"));
    one_by_one += one.out;
  }
  CHECK(all.out == one_by_one);

  const nlohmann::json document = run_attune(words("show source --algorithm fa1 --json" + problem), kNoGpu).json();
  CHECK(document.at("algorithm") == "fa1");
  CHECK(document.at("origin") == "algorithm");
  REQUIRE(document.at("launches").size() == 1);
  CHECK(document.at("launches").at(0).at("entry") == "attune_ladder_fa1");
}

TEST_CASE("--launch picks one of a backward plan's kernels", "[nogpu]") {
  const nlohmann::json document =
      run_attune(words("show source --pass backward --seq 100 --head-dim 64 --target a100 --launch 2 --json"), kNoGpu)
          .json();
  REQUIRE(document.at("launches").size() == 1);
  CHECK(document.at("launches").at(0).at("entry") == "attune_backward_dkdv_sm80");
}

TEST_CASE("show plan of an algorithm: workspace, and the traffic of each launch", "[nogpu]") {
  const std::string problem = " --heads 2 --kv-heads 1 --seq 100 --kv-seq 130 --head-dim 64 --target a100";
  const nlohmann::json document = run_attune(words("show plan --algorithm standard --json" + problem), kNoGpu).json();
  CHECK(document.at("workspace_bytes") == 2 * 100 * 132 * 4);
  REQUIRE(document.at("launches").size() == 3);
  double read = 0, written = 0;
  for (const nlohmann::json& launch : document.at("launches")) {
    read += launch.at("counted_traffic").at("read_bytes").get<double>();
    written += launch.at("counted_traffic").at("written_bytes").get<double>();
  }
  CHECK(document.at("launches").at(1).at("counted_traffic").at("read_bytes") == 3 * 4.0 * 2 * 100 * 130);
  CHECK(document.at("counted_traffic").at("read_bytes") == read);
  CHECK(document.at("counted_traffic").at("written_bytes") == written);

  const CommandResult text = run_attune(words("show plan --algorithm fa1" + problem), kNoGpu);
  CHECK(text.status == 0);
  for (const std::string part : {"of algorithm fa1", "2 CTAs: one for each head", "before caches", "row_states"})
    CHECK_THAT(text.out, ContainsSubstring(part));
}

TEST_CASE("check takes algorithms, in any mode of the emulator", "[emulator]") {
  const CommandResult result =
      run_attune(words("check --algorithm all --device emulator --async lazy --schedule random --batch 2 --heads 4 "
                       "--kv-heads 2 --seq 70 --kv-seq 150 --head-dim 72 --causal --dtype fp16 --json"),
                 kNoGpu);
  INFO(result.err << result.out);
  REQUIRE(result.status == 0);
  const nlohmann::json document = result.json();
  CHECK(document.at("status") == "ok");
  REQUIRE(document.at("algorithms").size() == 4);
  for (const nlohmann::json& algorithm : document.at("algorithms")) {
    CHECK(algorithm.at("status") == "ok");
    CHECK(algorithm.at("outputs").at("o").at("within") == true);
    CHECK(algorithm.at("outputs").at("lse").at("within") == true);
  }
}

TEST_CASE("check of an algorithm takes rows that are not aligned", "[emulator]") {
  const CommandResult result = run_attune(
      {"check", "--algorithm", "all", "--device", "emulator", "--problem", "forward bf16 b1 hq2 sq40 d64 align2"},
      kNoGpu);
  INFO(result.err << result.out);
  CHECK(result.status == 0);
}

TEST_CASE("a wrong kernel of an algorithm fails its check", "[emulator]") {
  const TemporaryFolder folder;
  std::filesystem::copy(attune::testing::source_folder() / "templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  const std::string sums = folder.file("ladder/warp_sums.cu");
  std::string text = read_file(sums);
  const std::string step = "  x += shfl_sync_bfly_f32<2>(x);\n";
  REQUIRE(text.find(step) != std::string::npos);
  text.erase(text.find(step), step.size());
  write_file(sums, text);
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_TEMPLATE_DIR"] = folder.path().string();
  const CommandResult result = run_attune(
      words("check --algorithm online,fa1 --device emulator --heads 1 --seq 40 --head-dim 64 --json"), environment);
  CHECK(result.status == 1);
  const nlohmann::json document = result.json();
  CHECK(document.at("algorithms").at(0).at("status") == "wrong_result");
  CHECK_THAT(document.at("algorithms").at(0).at("reason").get<std::string>(), ContainsSubstring("o: "));
  CHECK(document.at("algorithms").at(1).at("status") == "ok");
}

TEST_CASE("bench of algorithms on the emulator checks and counts, and shows no time", "[emulator]") {
  const CommandResult result = run_attune(
      words("bench --algorithm standard,fa2 --device emulator --heads 2 --seq 100 --head-dim 64 --json"), kNoGpu);
  INFO(result.err << result.out);
  REQUIRE(result.status == 0);
  CHECK_THAT(result.err, ContainsSubstring("cannot time"));
  const nlohmann::json document = result.json();
  CHECK(document.at("timed") == false);
  REQUIRE(document.at("algorithms").size() == 2);
  CHECK(document.at("algorithms").at(0).at("algorithm") == "standard");
  CHECK(document.at("algorithms").at(0).at("launches").size() == 3);
  CHECK(document.at("algorithms").at(1).at("workspace_bytes") == 0);
  for (const nlohmann::json& algorithm : document.at("algorithms")) {
    CHECK(algorithm.at("outputs").at("o").at("within") == true);
    CHECK(algorithm.at("counted_traffic").at("read_bytes").get<double>() > 0);
    CHECK_FALSE(algorithm.contains("median_us"));
  }
  CHECK(
      run_attune(words("bench --algorithm fa1 --device emulator --seq 40 --head-dim 64"), kNoGpu).out.find("median") ==
      std::string::npos);
}

TEST_CASE("bench of algorithms on a GPU times them alternately", "[gpu]") {
  const CommandResult result =
      run_attune(words("bench --algorithm all --batch 2 --heads 8 --seq 1024 --head-dim 64 --causal --json"));
  INFO(result.err << result.out);
  REQUIRE(result.status == 0);
  const nlohmann::json document = result.json();
  CHECK(document.at("timed") == true);
  REQUIRE(document.at("algorithms").size() == 4);
  for (const nlohmann::json& algorithm : document.at("algorithms")) {
    CHECK(algorithm.at("median_us").get<double>() > 0);
    CHECK(algorithm.at("tflops").get<double>() > 0);
    CHECK(algorithm.at("share_of_memory_rate").get<double>() > 0);
  }
}

TEST_CASE("bench of algorithms never claims more than all of device memory's rate", "[gpu]") {
  // The ladder's first steps ask for the same bytes again and again: caches serve them.
  const CommandResult result = run_attune(words("bench --algorithm all --batch 1 --heads 4 --seq 512 --head-dim 64"));
  INFO(result.err << result.out);
  REQUIRE(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("GB/s"));
  CHECK_FALSE(std::regex_search(result.out, std::regex("(1[0-9][1-9]|1[1-9]0|[2-9][0-9]{2}|[0-9]{4,}) % of device")));
}

TEST_CASE("an algorithm that needs more memory than there is says how much", "[emulator]") {
  // Few pairs are attended to, but rows of S are whole: 4 * 10^12 bytes.
  const CommandResult result = run_attune(
      words("check --algorithm standard --device emulator --seq 1000000 --head-dim 8 --mask causal@-999990 --json"),
      kNoGpu);
  INFO(result.err << result.out);
  CHECK(result.status == 1);
  const nlohmann::json document = result.json();
  CHECK(document.at("algorithms").at(0).at("status") == "out_of_memory");
  CHECK_THAT(document.at("algorithms").at(0).at("reason").get<std::string>(), ContainsSubstring("3814697 MiB"));
}
