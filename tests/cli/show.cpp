// `attune show`, `devices` and --help: what is answered without a GPU.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "generator/plan/kernel_plan.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/source_folder.h"
#include "tests/temporary_folder.h"

using namespace attune;
using namespace attune::testing;

TEST_CASE("a template folder that is none is named with its variable", "[nogpu]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("empty"));
  std::filesystem::create_directory(folder.file("other"));
  write_file(folder.file("other/forward_sm80.cu"), "text\n");  // where kernels/ is named, not its parent
  for (const std::string wrong : {"none", "empty", "other"}) {
    const std::string path = folder.file(wrong);
    const CommandResult result =
        run_attune(words("show source --seq 16 --head-dim 64 --target h200"), {{"ATTUNE_TEMPLATE_DIR", path}});
    INFO(result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring("template folder " + path) && ContainsSubstring("ATTUNE_TEMPLATE_DIR") &&
                               ContainsSubstring("unset it"));
  }
}

TEST_CASE("every verb has --help with an example", "[nogpu]") {
  const std::string verb =
      GENERATE("run", "check", "show", "tune", "bench", "export", "input", "devices", "db", "db list", "db best");
  const CommandResult result = run_attune(words(verb + " --help"));
  CHECK(result.status == 0);
  const std::size_t example = result.out.find("\nExample:\n  attune ");
  REQUIRE(example != std::string::npos);
  CHECK(result.out.find("\n  attune " + verb + " ", example) != std::string::npos);
}

TEST_CASE("the command's own help lists the verbs but not the worker", "[nogpu]") {
  const CommandResult result = run_attune({"--help"});
  CHECK(result.status == 0);
  for (const std::string verb : {"run", "check", "show", "tune", "bench", "db", "devices"}) {
    CHECK_THAT(result.out, ContainsSubstring("\n  " + verb));
  }
  CHECK(result.out.find("worker") == std::string::npos);
  CHECK(run_attune({"--version"}).status == 0);
}

TEST_CASE("show source: the kernel alone on stdout", "[nogpu]") {
  const CommandResult result =
      run_attune(words("show source --target a100 --heads 16 --seq 4096 --head-dim 128 --causal"), kNoGpu);
  REQUIRE(result.status == 0);
  CHECK(result.err.empty());
  CHECK(result.out.rfind("// attune", 0) == 0);
  CHECK(result.out.back() == '\n');
  CHECK(result.out.find("#include") == std::string::npos);
  CHECK_THAT(result.out, ContainsSubstring("__global__"));

  const nlohmann::json document =
      run_attune(words("show source --target a100 --heads 16 --seq 4096 --head-dim 128 --causal --json"), kNoGpu)
          .json();
  CHECK(document.at("launches").at(0).at("source") == result.out);
  CHECK(document.at("launches").at(0).at("arch") == "sm_80");
  CHECK(document.at("origin") == "default");
}

TEST_CASE("show source --output writes a file for each launch", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string of = "--pass backward --seq 300 --head-dim 64 --target a100 --config ",
                    config = "sm80 q64 kv64 w4 st2 dq=atomic";
  const auto show = [&](const std::string& more) {
    std::vector<std::string> arguments = words("show source " + more + " " + of);
    arguments.push_back(config);
    return run_attune(arguments);
  };
  const CommandResult listed = show("--output " + folder.file("new/kernels"));
  REQUIRE(listed.status == 0);
  const std::string all = show("").out;
  std::string joined;
  for (const char* name :
       {"1_attune_backward_delta.cu", "2_attune_backward_dkdv_sm80.cu", "3_attune_backward_convert.cu"}) {
    const std::string path = folder / ("new/kernels/" + std::string(name));
    CHECK_THAT(listed.out, ContainsSubstring(path + "\n"));
    joined += read_file(path);
  }
  CHECK(joined == all);
  CHECK(show("--launch 2 --output " + folder.file("one")).out ==
        folder.file("one") + "/2_attune_backward_dkdv_sm80.cu\n");
  CHECK(read_file(folder / "one/2_attune_backward_dkdv_sm80.cu") == show("--launch 2").out);

  std::ofstream(folder / "file") << "in the way";
  const CommandResult refused = show("--output " + folder.file("file"));
  CHECK(refused.status != 0);
  CHECK_THAT(refused.err, ContainsSubstring("cannot be made"));
  CHECK_THAT(run_attune(words("show plan --seq 300 --head-dim 64 --target a100 --output " + folder.file("x"))).err,
             ContainsSubstring("--output has no meaning for show plan"));
}

TEST_CASE("what show source prints compiles, with all launches of a plan in one file", "[nvrtc]") {
  for (const char* plan : {"--seq 300 --head-dim 64 --target a100", "--seq 300 --head-dim 128 --causal --target h200",
                           "--pass backward --heads 8 --kv-heads 2 --seq 300 --head-dim 64 --target h200",
                           "--algorithm standard --seq 300 --head-dim 64 --target a100"}) {
    INFO(plan);
    const CommandResult shown = run_attune(words(std::string("show source ") + plan));
    REQUIRE(shown.status == 0);
    KernelLaunch launch;
    launch.source = shown.out;
    launch.arch = std::string(plan).find("h200") != std::string::npos ? "sm_90a" : "sm_80";
    CHECK_FALSE(compile_with_nvrtc(launch, CompileOutput::ptx).image.empty());
  }
}

TEST_CASE("show says which GPU it generates for when none was named", "[nogpu]") {
  const CommandResult result = run_attune(words("show source --seq 64 --head-dim 64"), kNoGpu);
  CHECK(result.status == 0);
  CHECK(result.out.rfind("// attune", 0) == 0);
  CHECK_THAT(result.err, ContainsSubstring("generating for NVIDIA H200"));
}

TEST_CASE("a given config and a problem text reach the kernel", "[nogpu]") {
  const CommandResult result =
      run_attune({"show", "plan", "--problem", "forward fp16 b2 hq6 hkv2 sq100 skv300 d72 causal", "--target", "h200",
                  "--config", "sm80 q64 kv32 w4 st1", "--json"});
  REQUIRE(result.status == 0);
  const nlohmann::json document = result.json();
  CHECK(document.at("problem") == "forward fp16 b2 hq6 hkv2 sq100 skv300 d72 causal");
  CHECK(document.at("config") == "sm80 q64 kv32 w4 st1");
  CHECK(document.at("origin") == "given");
  // 2 tiles of 64 rows, 6 heads, 2 batch entries; 4 warps.
  CHECK(document.at("launches").at(0).at("grid_x") == 24);
  CHECK(document.at("launches").at(0).at("threads") == 128);
  // 4 D FLOP per attended pair: query i of 100 sees 201 + i keys.
  CHECK(document.at("flops") == 4.0 * 72 * (100 * 201 + 99 * 50) * 6 * 2);
}

TEST_CASE("flags and text name the same problem", "[nogpu]") {
  const auto problem_of = [](const std::string& flags) {
    return run_attune(words("show plan --target a100 --json " + flags)).json().at("problem").get<std::string>();
  };
  CHECK(problem_of("--seq 16 --head-dim 64") == "forward bf16 b1 hq1 sq16 d64");
  CHECK(problem_of("--pass forward --dtype fp16 --batch 2 --heads 4 --kv-heads 2 --seq 16 --kv-seq 32 --head-dim 40 "
                   "--mask causal "
                   "--scale 0.5 --layout bhsd --seed 7") ==
        "forward fp16 b2 hq4 hkv2 sq16 skv32 d40 causal scale0.5 bhsd");
  CHECK(problem_of("--seq 16 --kv-seq 32 --head-dim 64 --causal") ==
        problem_of("--seq 16 --kv-seq 32 --head-dim 64 --mask causal@16"));
  CHECK(problem_of("--seq 16 --kv-seq 32 --head-dim 64 --mask window=4,2") ==
        "forward bf16 b1 hq1 sq16 skv32 d64 window=4,2");
  CHECK(problem_of("--seq 16 --head-dim 64 --causal --mask window=4,open") ==
        "forward bf16 b1 hq1 sq16 d64 window=4,0");
  CHECK(problem_of("--seq 16 --kv-seq 32 --head-dim 64 --mask causal-top-left") ==
        "forward bf16 b1 hq1 sq16 skv32 d64 causal-top-left");
  // Decimal, whatever zeros it begins with.
  CHECK(problem_of("--seq 010 --head-dim 64") == "forward bf16 b1 hq1 sq10 d64");
  CHECK(problem_of("--seq 16 --head-dim 64 --mask none") == problem_of("--seq 16 --head-dim 64"));
}

TEST_CASE("show plan names launches, arguments and work", "[nogpu]") {
  const CommandResult result = run_attune(words("show plan --seq 300 --head-dim 64 --target rtx4090"));
  CHECK(result.status == 0);
  for (const std::string part :
       {"rtx4090", "FLOP", "workspace", "threads", "shared memory", "softmax_scale", "q_stride_row"}) {
    CHECK_THAT(result.out, ContainsSubstring(part));
  }
}

TEST_CASE("show plan of a backward problem names its launches and its workspace", "[nogpu]") {
  std::vector<std::string> asked = words(
      "show plan --pass backward --batch 2 --heads 6 --kv-heads 2 --seq 100 --kv-seq 300 --head-dim 64 --target a100 "
      "--json --config");
  asked.push_back("sm80 q64 kv64 w4 st2 dq=atomic");
  const nlohmann::json document = run_attune(asked).json();
  const int rows = 2 * 6 * 128;  // in blocks of 64 queries
  CHECK(document.at("zeroed_bytes") == rows * 64 * 4);
  CHECK(document.at("workspace_bytes") == rows * (64 * 4 + 2 * 4));
  CHECK(document.at("workspace_buffers") ==
        nlohmann::json({{{"name", "d_q_sums"}, {"offset", 0}, {"bytes", rows * 64 * 4}, {"zeroed", true}},
                        {{"name", "statistics"}, {"offset", rows * 64 * 4}, {"bytes", rows * 8}, {"zeroed", false}}}));
  CHECK(document.at("ordered_outputs") == nlohmann::json({"dk", "dv"}));
  const nlohmann::json& launches = document.at("launches");
  REQUIRE(launches.size() == 3);
  CHECK(launches.at(0).at("entry") == "attune_backward_delta");
  CHECK(launches.at(1).at("entry") == "attune_backward_dkdv_sm80");
  CHECK(launches.at(1).at("key_tiles") == 5);
  CHECK(launches.at(1).at("grid_x") == 5 * 2 * 2);
  CHECK(launches.at(2).at("entry") == "attune_backward_convert");
  CHECK(launches.at(2).at("grid_x") == 2 * 6 * 2);
  CHECK(document.at("flops") == 10.0 * 64 * 100 * 300 * 12);

  asked.back() = "sm80 q64 kv64 w4 st2 kv-grad-per-query-head";
  const nlohmann::json apart = run_attune(asked).json();
  CHECK(apart.at("launches").at(1).at("kv_grad_per_query_head") == true);
  CHECK(apart.at("launches").at(1).at("grid_x") == 5 * 6 * 2);
  CHECK(apart.at("launches").at(3).at("entry") == "attune_backward_convert_keys");
  std::vector<std::string> names;
  for (const nlohmann::json& buffer : apart.at("workspace_buffers")) names.push_back(buffer.at("name"));
  CHECK(names == std::vector<std::string>{"d_k_sums", "d_v_sums", "dkdv_tickets", "statistics"});
  asked.erase(std::find(asked.begin(), asked.end(), "--json"));
  CHECK_THAT(run_attune(asked).out, ContainsSubstring("5 tiles of 64 keys, for each query head and batch entry"));
  asked.back() = "sm80 q64 kv64 w4 st2 query-parts2";
  CHECK_THAT(run_attune(asked).out,
             ContainsSubstring("2 parts of the queries of 5 tiles of 64 keys, for each query head and batch entry"));
}

TEST_CASE("show space lists at least 100 candidates, and why others are rejected", "[nogpu]") {
  const std::string target = GENERATE("a100", "h200");
  const std::string head_dim = GENERATE("64", "128");
  const nlohmann::json document = run_attune(words("show space --heads 16 --seq 4096 --limit 7 --json --target " +
                                                   target + " --head-dim " + head_dim))
                                      .json();
  CHECK(document.at("feasible").get<int>() >= 100);
  REQUIRE(document.at("candidates").size() == 7);
  double previous = 0;
  for (const nlohmann::json& candidate : document.at("candidates")) {
    CHECK(candidate.at("estimated_us").get<double>() >= previous);
    previous = candidate.at("estimated_us").get<double>();
  }
  REQUIRE(document.at("rejected").get<int>() > 0);
  for (const nlohmann::json& rejection : document.at("rejections")) CHECK_FALSE(rejection.at("reasons").empty());
}

TEST_CASE("show space of a backward problem", "[nogpu]") {
  const nlohmann::json document =
      run_attune(words("show space --pass backward --heads 16 --seq 4096 --head-dim 72 --causal --target h200 --json"))
          .json();
  CHECK(document.at("feasible").get<int>() >= 100);
  CHECK(document.at("rejected").get<int>() > 0);
  CHECK(document.at("candidates").at(0).at("estimated_us").get<double>() > 0);
}

TEST_CASE("show ptx and resources through NVRTC", "[nvrtc]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"CUDA_VISIBLE_DEVICES", "-1"},
                                                          {"ATTUNE_CACHE_DIR", folder.file("cache")}};
  const CommandResult ptx = run_attune(words("show ptx --seq 300 --head-dim 64 --target a100"), environment);
  CHECK(ptx.status == 0);
  CHECK_THAT(ptx.out, ContainsSubstring(".target sm_80"));
  CHECK_THAT(ptx.out, ContainsSubstring("mma.sync"));

  const nlohmann::json resources =
      run_attune(words("show resources --seq 300 --head-dim 64 --target h200 --json"), environment).json();
  const nlohmann::json& launch = resources.at("launches").at(0);
  CHECK(launch.at("registers").get<int>() > 32);
  CHECK(launch.at("registers").get<int>() <= 255);
  CHECK(launch.at("arch") == "sm_90a");
  CHECK(launch.at("from_cache") == false);
  CHECK(run_attune(words("show resources --seq 300 --head-dim 64 --target h200 --json"), environment)
            .json()
            .at("launches")
            .at(0)
            .at("from_cache") == true);
}

TEST_CASE("show sass disassembles the cubin, and says how to get nvdisasm where it is missing", "[nvrtc]") {
  const TemporaryFolder folder;
  std::map<std::string, std::string> environment = {{"CUDA_VISIBLE_DEVICES", "-1"},
                                                    {"ATTUNE_CACHE_DIR", folder.file("cache")}};
  // A stand-in that shows what it was given: the first bytes of an ELF file.
  write_file(folder.file("nvdisasm"), "#!/bin/sh\nprintf 'disassembled '; head -c 4 \"$1\" | tail -c 3\n");
  std::filesystem::permissions(folder.file("nvdisasm"), std::filesystem::perms::owner_all);
  environment["ATTUNE_NVDISASM"] = folder.file("nvdisasm");
  const CommandResult found = run_attune(words("show sass --seq 300 --head-dim 64 --target a100"), environment);
  CHECK(found.status == 0);
  CHECK(found.out == "disassembled ELF\n");

  environment["ATTUNE_NVDISASM"] = folder.file("absent");
  const CommandResult absent = run_attune(words("show sass --seq 300 --head-dim 64 --target a100"), environment);
  CHECK(absent.status == 2);
  CHECK_THAT(absent.err, ContainsSubstring("ATTUNE_NVDISASM"));

  write_file(folder.file("nvdisasm"), "#!/bin/sh\nexit 9\n");
  environment["ATTUNE_NVDISASM"] = folder.file("nvdisasm");
  const CommandResult failing = run_attune(words("show sass --seq 300 --head-dim 64 --target a100"), environment);
  CHECK(failing.status == 2);
  CHECK_THAT(failing.err, ContainsSubstring("status 9"));
}

TEST_CASE("templates from a folder are what is shown", "[nogpu]") {
  const TemporaryFolder folder;
  std::filesystem::copy(attune::testing::source_folder() / "templates", folder.path(),
                        std::filesystem::copy_options::recursive);
  const std::string kernel = folder.file("kernels/forward_sm80.cu");
  write_file(kernel, read_file(kernel) + "// carved by hand\n");
  const CommandResult result = run_attune(words("show source --seq 64 --head-dim 64 --target a100"),
                                          {{"ATTUNE_TEMPLATE_DIR", folder.path().string()}});
  CHECK(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("// carved by hand"));

  write_file(kernel, read_file(kernel) + "${no_such_name}\n");
  const CommandResult broken = run_attune(words("show source --seq 64 --head-dim 64 --target a100 --json"),
                                          {{"ATTUNE_TEMPLATE_DIR", folder.path().string()}});
  CHECK(broken.status == 3);
  CHECK(broken.json().at("code") == "template_error");
  CHECK_THAT(broken.err, ContainsSubstring("no_such_name"));
}

TEST_CASE("devices: why there is no GPU, the compiler, the known targets", "[nogpu]") {
  const nlohmann::json document = run_attune({"devices", "--json"}, kNoGpu).json();
  CHECK(document.at("gpus").empty());
  CHECK_FALSE(document.at("no_gpu").get<std::string>().empty());
  CHECK(document.at("driver").contains("missing"));
  CHECK_THAT(document.at("presets").at("missing").get<std::string>(), ContainsSubstring("ATTUNE_SYSTEM_DATABASE"));
  CHECK(document.contains("database"));
  CHECK_FALSE(document.at("cache").get<std::string>().empty());
  std::vector<std::string> targets;
  for (const nlohmann::json& target : document.at("targets")) targets.push_back(target.at("target"));
  for (const std::string key : {"a100", "h200", "rtx4090", "gh200", "gb200", "b300", "sm_90a"}) {
    CHECK(std::find(targets.begin(), targets.end(), key) != targets.end());
  }
  const CommandResult text = run_attune({"devices"}, kNoGpu);
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("h200"));
  CHECK_THAT(text.out, ContainsSubstring("none: ATTUNE_SYSTEM_DATABASE is set and empty, which switches them off"));
}

TEST_CASE("devices lists the GPU that is here", "[gpu]") {
  const nlohmann::json document = run_attune({"devices", "--json"}).json();
  REQUIRE_FALSE(document.at("gpus").empty());
  CHECK(document.at("gpus").at(0).at("device") == "cuda:0");
  CHECK(document.at("gpus").at(0).at("sm_count").get<int>() > 0);
  CHECK(document.at("driver").is_string());
}

TEST_CASE("output that cannot be written is an error", "[nogpu]") {
  if (!std::filesystem::exists("/dev/full")) return;
  const CommandResult result = run_attune_to("/dev/full", words("show source --seq 64 --head-dim 64 --target a100"));
  CHECK(result.status == 2);
  CHECK_THAT(result.err, ContainsSubstring("standard output"));
}
