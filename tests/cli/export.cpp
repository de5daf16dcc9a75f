// `attune export`: which files it writes, what it refuses to write over, and that NVRTC takes its kernels.
#include <algorithm>
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace {

const std::vector<std::string> kFiles = {"kernel.cu",      "launch.h",  "launch.cpp", "test.cu",
                                         "CMakeLists.txt", "README.md", "plan.json"};

std::vector<std::string> export_to(const std::string& folder, const std::string& more) {
  std::vector<std::string> arguments = {"export", "--output", folder};
  for (const std::string& word : words(more)) arguments.push_back(word);
  return arguments;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

const std::string kSmall = "--target a100 --seq 64 --head-dim 64 --causal";

}  // namespace

TEST_CASE("export writes a folder that explains itself", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string out = folder.file("new/attention");
  const CommandResult result = run_attune(export_to(out, kSmall), kNoGpu);
  INFO(result.err);
  REQUIRE(result.status == 0);
  std::vector<std::string> expected = kFiles;
  std::sort(expected.begin(), expected.end());
  CHECK(names_in(out) == expected);
  CHECK_THAT(result.out, ContainsSubstring("attune_forward_bf16_d64_causal()") && ContainsSubstring("-arch=sm_80"));
  CHECK_THAT(read_file(out + "/README.md"), ContainsSubstring("nvcc -std=c++17 -O3 -arch=sm_80"));
  const nlohmann::json plan = nlohmann::json::parse(read_file(out + "/plan.json"));
  CHECK(plan.at("problem") == "forward bf16 b1 hq1 sq64 d64 causal");
  CHECK(plan.at("launches").at(0).at("threads").get<int>() > 0);

  const nlohmann::json document =
      run_attune(export_to(folder.file("json"), kSmall + " --name my_own --json"), kNoGpu).json();
  CHECK(document.at("name") == "my_own");
  CHECK(document.at("files") == kFiles);
  CHECK(document.at("origin") == "default");
  CHECK_THAT(read_file(folder.file("json/launch.h")), ContainsSubstring("cudaError_t my_own(const my_own_call* call,"));
}

TEST_CASE("export says that a mask which hides nothing is in no kernel", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string decode = "--target a100 --seq 1 --kv-seq 100 --head-dim 64 ";
  const std::string said = "the mask hides nothing at these lengths";
  CHECK_THAT(run_attune(export_to(folder.file("a"), decode + "--causal"), kNoGpu).err, ContainsSubstring(said));
  CHECK_THAT(run_attune(export_to(folder.file("b"), decode + "--mask window=200,0"), kNoGpu).err,
             ContainsSubstring(said));
  CHECK_THAT(run_attune(export_to(folder.file("c"), decode), kNoGpu).err, !ContainsSubstring(said));
  CHECK_THAT(run_attune(export_to(folder.file("d"), kSmall), kNoGpu).err, !ContainsSubstring(said));
  std::vector<std::string> by_text = export_to(folder.file("e"), "--target a100");
  by_text.insert(by_text.end(), {"--problem", "sq1 skv100 d64 causal"});
  CHECK_THAT(run_attune(by_text, kNoGpu).err, ContainsSubstring(said));
}

TEST_CASE("export writes over nothing that it was not told to", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string out = folder.file("mine");
  std::filesystem::create_directory(out);
  REQUIRE(run_attune(export_to(out, kSmall)).status == 0);  // empty
  write_file(out + "/kernel.cu", "changed by hand\n");
  write_file(out + "/notes.txt", "mine\n");
  const CommandResult refused = run_attune(export_to(out, kSmall));
  CHECK(refused.status == 2);
  CHECK_THAT(refused.err, ContainsSubstring("is not empty") && ContainsSubstring("--force"));
  CHECK(read_file(out + "/kernel.cu") == "changed by hand\n");

  write_file(out + "/kernel.cubin", "of other kernels");
  const CommandResult forced = run_attune(export_to(out, kSmall + " --force"));
  CHECK(forced.status == 0);
  CHECK_THAT(read_file(out + "/kernel.cu"), ContainsSubstring("__global__"));
  CHECK(read_file(out + "/notes.txt") == "mine\n");
  CHECK_FALSE(std::filesystem::exists(out + "/kernel.cubin"));
  CHECK_THAT(forced.err, ContainsSubstring("kernel.cubin of an earlier export was removed"));

  write_file(folder.file("file"), "in the way");
  const CommandResult file = run_attune(export_to(folder.file("file"), kSmall + " --force"));
  CHECK(file.status == 2);
  CHECK_THAT(file.err, ContainsSubstring("is there and is no folder"));
  CHECK(read_file(folder.file("file")) == "in the way");
}

TEST_CASE("export writes through no link, and its command is one that a shell takes", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string out = folder.file("a b;c"), other = folder.file("other");
  CHECK_THAT(run_attune(export_to(out, kSmall)).out, ContainsSubstring("cd '" + out + "' && nvcc"));
  write_file(other, "precious");
  std::filesystem::remove(out + "/launch.h");
  std::filesystem::create_symlink(other, out + "/launch.h");
  const CommandResult forced = run_attune(export_to(out, kSmall + " --force"));
  CHECK(forced.status == 2);
  CHECK_THAT(forced.err, ContainsSubstring("launch.h is a link, which --force does not write through"));
  CHECK(read_file(other) == "precious");
}

TEST_CASE("export says what is wrong with its arguments", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string out = folder.file("out");
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const CommandResult result = run_attune(arguments);
    CHECK(result.status == 2);
    CHECK_FALSE(std::filesystem::exists(out));
    return result.err;
  };
  CHECK_THAT(refusal(words("export --seq 64 --head-dim 64 --target a100")), ContainsSubstring("--output"));
  CHECK_THAT(refusal(export_to(out, kSmall + " --name 2nd")), ContainsSubstring("must be a name in C"));
  for (const std::string name : {"static_assert", "thread_local", "size_t", "my_type_t"}) {
    INFO(name);
    CHECK_THAT(refusal(export_to(out, kSmall + " --name " + name)), ContainsSubstring("is a word of C"));
  }
  CHECK_THAT(refusal(export_to(out, "--seq 64 --head-dim 63 --target a100")), ContainsSubstring("head dim 63"));
  std::vector<std::string> infeasible = export_to(out, kSmall + " --config");
  infeasible.push_back("sm90 q128 kv80 st2");
  CHECK_THAT(refusal(infeasible), ContainsSubstring("does not fit"));
  const CommandResult json = run_attune(export_to(out, kSmall + " --name 2nd --json"));
  CHECK(json.json().at("code") == "invalid_argument");
}

TEST_CASE("show plan --json tells all that a launch takes", "[nogpu]") {
  std::vector<std::string> asked =
      words("show plan --batch 2 --heads 8 --seq 4096 --head-dim 256 --causal --target h200 --json --config");
  asked.push_back("sm90 q128 kv80 st2 rescale10 overlap=within scheduler=dynamic-persistent vst1 cluster2");
  const nlohmann::json document = run_attune(asked).json();
  CHECK(document.at("workspace_bytes") == 4);
  CHECK(document.at("workspace_alignment") == 256);
  CHECK(document.at("zeroed_bytes") == 4);
  const nlohmann::json& launch = document.at("launches").at(0);
  CHECK(launch.at("grid") == nlohmann::json({132, 1, 1}));
  CHECK(launch.at("cluster") == nlohmann::json({2, 1, 1}));
  CHECK(launch.at("block") == nlohmann::json({launch.at("threads"), 1, 1}));
  CHECK(launch.at("max_ctas") == 132);
  CHECK(launch.at("argument_alignment") == 64);
  REQUIRE(launch.at("tensor_maps").size() == 3);
  const nlohmann::json& map = launch.at("tensor_maps").at(1);
  CHECK(map.at("operand") == "k");
  CHECK(map.at("dims") == nlohmann::json({256, 8, 4096, 2}));
  CHECK(map.at("strides_bytes") == nlohmann::json({2 * 256, 2 * 256 * 8, 2 * 256 * 8 * 4096}));
  CHECK(map.at("box") == nlohmann::json({64, 1, 40, 1}));  // each CTA of a pair loads half of the keys
  CHECK(map.at("swizzle_bytes") == 128);
  const auto argument = [&](const std::string& name) {
    for (const nlohmann::json& each : launch.at("arguments"))
      if (each.at("name") == name) return each;
    FAIL("no argument " << name);
    return nlohmann::json();
  };
  CHECK(argument("k_map").at("tensor_map") == "k");
  CHECK(argument("k_map").at("bytes") == 128);
  CHECK(argument("o").at("pointer") == "o");
  CHECK(argument("o_stride_row").at("value") == 256 * 8);
  CHECK(argument("tile_counter").at("workspace_offset") == 0);
  CHECK(argument("seq_kv").at("value") == 4096);
  CHECK(argument("softmax_scale").at("value") == 0.0625);
  CHECK(map.at("bytes_before") == 0);

  // A map that ends with the rows of a sequence has a dimension more, and begins before the tensor.
  const nlohmann::json used =
      run_attune(words("show plan --batch 2 --heads 8 --seq 4096 --head-dim 128 --lengths used --target h200 --json"))
          .json();
  const nlohmann::json& moved = used.at("launches").at(0).at("tensor_maps").at(0);
  CHECK(moved.at("dimensions") == nlohmann::json({"column", "head", "row", "size", "batch"}));
  CHECK(moved.at("dims") == nlohmann::json({128, 8, 4096, 4097, 2}));
  CHECK(moved.at("strides_bytes") == nlohmann::json({2 * 128, 2 * 128 * 8, 2 * 128 * 8, 2 * 128 * 8 * 4096}));
  CHECK(moved.at("bytes_before") == std::int64_t{4096} * 2 * 128 * 8);
  CHECK(moved.at("box").size() == 5);
}

TEST_CASE("export --cubin: NVRTC takes the exported file as a whole", "[nvrtc]") {
  const TemporaryFolder folder;
  const CommandResult result = run_attune(
      export_to(folder.file("out"), "--target a100 --pass backward --seq 64 --head-dim 16 --cubin --json"), kNoGpu);
  INFO(result.err);
  REQUIRE(result.status == 0);
  CHECK(result.json().at("files").back() == "kernel.cubin");
  const std::string cubin = read_file(folder.file("out/kernel.cubin"));
  CHECK(cubin.substr(1, 3) == "ELF");
  // The names by which launch.cpp finds the kernels.
  for (const nlohmann::json& launch : nlohmann::json::parse(read_file(folder.file("out/plan.json"))).at("launches")) {
    const std::string entry = launch.at("entry");
    CHECK(entry.starts_with("attune_backward_bf16_d16_backward_"));
    INFO(entry);
    CHECK(cubin.find(entry) != std::string::npos);
  }
  CHECK_THAT(read_file(folder.file("out/README.md")), ContainsSubstring("compiled by NVRTC"));
}

TEST_CASE("export --cubin of Hopper's kernels and of parts", "[nvrtc][slow]") {
  const TemporaryFolder folder;
  int number = 0;
  for (const char* problem :
       {"--heads 8 --seq 4096 --head-dim 128 --causal", "--heads 32 --kv-heads 8 --seq 1 --kv-seq 8192 --head-dim 128",
        "--pass backward --heads 8 --seq 4096 --head-dim 128 --causal",
        "--pass backward --heads 8 --kv-heads 2 --seq 1024 --head-dim 64 --deterministic"}) {
    INFO(problem);
    const std::string out = folder.file(std::to_string(++number));
    const CommandResult result = run_attune(export_to(out, std::string(problem) + " --target h200 --cubin"), kNoGpu);
    INFO(result.err);
    REQUIRE(result.status == 0);
    CHECK(read_file(out + "/kernel.cubin").substr(1, 3) == "ELF");
  }
}
