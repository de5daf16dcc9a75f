// `pack`: kernels and picks of a list of problems in one file, and what is told of such a file.
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;
namespace fs = std::filesystem;

namespace pack_test {
namespace {

std::map<std::string, std::string> with_cache(const TemporaryFolder& folder) {
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_CACHE_DIR"] = folder.file("cache");
  return environment;
}

}  // namespace

TEST_CASE("pack writes what calls would pick and shows it again", "[nvrtc]") {
  const TemporaryFolder folder;
  const std::string shapes = folder.file("shapes.csv"), pack = folder.file("model.attune");
  // The second one is the first: scale and layout have no rows of their own. The third has its kernel.
  write_file(shapes, "heads,seq,head-dim,scale\n64,500,16,\n64,500,16,0.3\n128,500,16,\n");
  const std::string make = "pack --target a100 --shapes " + shapes + " --output " + pack;
  const CommandResult made = run_attune(words(make + " --json"), with_cache(folder));
  INFO(made.err);
  REQUIRE(made.status == 0);
  const nlohmann::json document = made.json();
  CHECK(document.at("device") == "NVIDIA A100-SXM4-80GB");
  CHECK(document.at("sm_count") == 108);
  CHECK(document.at("arch") == "sm_80");
  CHECK(document.at("not_tuned_for_this_gpu") == 2);
  REQUIRE(document.at("picks").size() == 2);
  CHECK(document.at("picks").at(0).at("problem") == "forward bf16 b1 hq64 sq500 d16");
  CHECK(document.at("picks").at(0).at("origin") == "default");
  CHECK(document.at("picks").at(0).at("config") == document.at("picks").at(1).at("config"));
  REQUIRE(document.at("kernels").size() == 1);
  CHECK(document.at("kernels").at(0).at("bytes") > 1000);

  const CommandResult shown = run_attune(words("pack --json --show " + pack), with_cache(folder));
  REQUIRE(shown.status == 0);
  nlohmann::json seen = shown.json();
  CHECK(seen.at("usable") == true);
  CHECK(seen.at("content_hash") == document.at("content_hash"));
  for (const char* part : {"kernels", "compiler", "templates_hash", "created_at", "attune_version"})
    CHECK(seen.at(part) == document.at(part));
  CHECK(seen.at("picks").size() == 2);
  const CommandResult text = run_attune(words("pack --show " + pack), with_cache(folder));
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("NVIDIA A100-SXM4-80GB with 108 SMs") &&
                           ContainsSubstring("forward bf16 b1 hq128 sq500 d16") && ContainsSubstring("whole") &&
                           ContainsSubstring("by this version"));

  // What is there is replaced only if it is said, and stays if a pack cannot be made.
  const std::string bytes = read_file(pack);
  const CommandResult again = run_attune(words(make), with_cache(folder));
  CHECK(again.status == 2);
  CHECK_THAT(again.err, ContainsSubstring("--force"));
  CHECK(run_attune(words(make + " --force --compile-timeout 0.0001 --database " + folder.file("none.db")), {}).status ==
        1);
  CHECK(read_file(pack) == bytes);
  CHECK(run_attune(words(make + " --force"), with_cache(folder)).status == 0);
  CHECK(read_file(pack) != bytes);  // of a later time

  // Templates that are not those of the pack.
  fs::create_directories(folder / "templates");
  std::map<std::string, std::string> others = with_cache(folder);
  others["ATTUNE_TEMPLATE_DIR"] = folder.file("templates/kernels/..");
  fs::create_directories(folder / "templates/kernels");
  write_file(folder.file("templates/kernels/forward_sm80.cu"), "// nothing\n");
  const CommandResult unusable = run_attune(words("pack --json --show " + pack), others);
  CHECK(unusable.status == 1);
  CHECK(unusable.json().at("usable") == false);
  CHECK_THAT(unusable.json().at("why_not").get<std::string>(), ContainsSubstring("other kernel templates"));
}

TEST_CASE("pack refuses bad input before it compiles", "[nogpu]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& line, const std::string& part, int status = 2) {
    const CommandResult result = run_attune(words("pack " + line), with_cache(folder));
    INFO(result.err);
    CHECK(result.status == status);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  const std::string there = folder.file("there"), pack = folder.file("model.attune");
  const std::string problem = "--target a100 --seq 16 --head-dim 64 ";
  write_file(there, "something\n");
  write_file(folder.file("shapes.csv"), "seq,head-dim\n512,65\n");
  refused(problem, "--output is missing");
  refused("--output " + pack + " --target a100", "--seq");
  refused(problem + "--output " + there, "exists already; --force replaces it");
  refused(problem + "--output " + folder.file("none/model.attune"), "make the folder");
  refused("--target sm_80 --seq 16 --head-dim 64 --output " + pack, "--target sm_80 stands for several models");
  refused("--target a1000 --seq 16 --head-dim 64 --output " + pack, "did you mean a100");
  refused("--target a100 --shapes " + folder.file("shapes.csv") + " --output " + pack, "row 1");
  refused("--target a100 --shapes " + folder.file("shapes.csv") + " --force --output " + folder.file("shapes.csv"),
          "row 1");
  refused(problem + "--workers -1 --output " + pack, "--workers -1");
  refused(problem + "--compile-timeout 0 --output " + pack, "--compile-timeout 0");
  refused("--show " + folder.file("none"), "there is no pack");
  refused("--show " + there, "is no pack of kernels");
  refused("--show " + there + " --target a100", "--show looks at a pack");
  CHECK(read_file(there) == "something\n");
  CHECK_FALSE(fs::exists(pack));
  CHECK_FALSE(fs::exists(folder / "cache"));

  std::map<std::string, std::string> environment = with_cache(folder);
  environment["ATTUNE_NVRTC"] = folder.file("libnvrtc.so.13");
  const CommandResult result = run_attune(words("pack --json " + problem + "--output " + pack), environment);
  CHECK(result.status == 2);
  CHECK(result.json().at("code") == "nvrtc_unavailable");
}

}  // namespace pack_test
