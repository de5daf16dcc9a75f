// `compile`: the cubin cache is filled without a GPU, once, and shards share the work.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace compile_test {
namespace {

std::map<std::string, std::string> with_cache(const std::string& folder) {
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_CACHE_DIR"] = folder;
  return environment;
}

std::size_t cubins(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.path().extension() == ".cubin";
  return count;
}

/// While one lives, what this process starts can write no file of more than so many bytes, as on a disk that is full.
class ShortFiles {
 public:
  explicit ShortFiles(rlim_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
  }
  ~ShortFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  ShortFiles(const ShortFiles&) = delete;
  ShortFiles& operator=(const ShortFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

}  // namespace

TEST_CASE("compile fails where a cubin cannot be stored, and says how many are", "[nvrtc]") {
  const TemporaryFolder folder;
  const std::string cache = folder.file("cache");
  const std::string compile = "compile --target a100 --max-candidates 2 --heads 64 --seq 512 --head-dim 16";
  CommandResult result;
  for (const std::string& verb : {compile, "tune --compile-only" + compile.substr(compile.find(" --target"))}) {
    INFO(verb);
    {
      const ShortFiles disk(4096);
      result = run_attune(words(verb + " --json"), with_cache(cache));
    }
    INFO(result.err);
    CHECK(result.status == 2);
    CHECK(result.json().at("status") == "not_stored");
    CHECK(result.json().at("compiled") == 2);
    CHECK(result.json().at("stored") == 0);
    CHECK_THAT(result.err, ContainsSubstring("2 of 2 compiled kernels are not stored in " + cache) &&
                               ContainsSubstring("Run the same command again"));
    CHECK(cubins(cache) == 0);
  }
  {
    const ShortFiles disk(4096);
    result = run_attune(words(compile), with_cache(cache));
  }
  CHECK(result.status == 2);
  CHECK_THAT(result.out, ContainsSubstring("of which 0 are stored"));
  // What fits is stored.
  result = run_attune(words(compile + " --json"), with_cache(cache));
  CHECK(result.status == 0);
  CHECK(result.json().at("stored") == 2);
  CHECK(cubins(cache) == 2);
}

TEST_CASE("compile fills the cache in shards; a second run compiles nothing", "[nvrtc]") {
  const TemporaryFolder folder;
  const std::string cache = folder.file("cache"), shapes = folder.file("shapes.csv");
  // Two lengths of one kernel class: their kernels are the same where both candidates are. Enough heads that no
  // candidate splits its keys and has a second kernel.
  write_file(shapes, "heads,seq,head-dim\n64,512,16\n64,500,16\n");
  const std::string compile = "compile --target a100 --max-candidates 2 --json --shapes " + shapes;
  std::size_t compiled = 0, kernels = 0;
  for (const std::string shard : {"1/2", "2/2"}) {
    const CommandResult result = run_attune(words(compile + " --shard " + shard), with_cache(cache));
    INFO(result.err);
    REQUIRE(result.status == 0);
    const nlohmann::json document = result.json();
    CHECK(document.at("problems") == 2);
    CHECK(document.at("candidates") == 4);
    CHECK(document.at("failed") == 0);
    CHECK(document.at("from_cache") == 0);
    CHECK(document.at("compiled") == document.at("kernels_of_shard"));
    compiled += document.at("compiled").get<std::size_t>();
    kernels = document.at("kernels");
    CHECK_THAT(result.err, ContainsSubstring("1/" + document.at("kernels_of_shard").dump()));
  }
  CHECK(compiled == kernels);
  CHECK(cubins(cache) == kernels);

  const nlohmann::json again = run_attune(words(compile), with_cache(cache)).json();
  CHECK(again.at("from_cache") == kernels);
  CHECK(again.at("compiled") == 0);
}

TEST_CASE("a kernel that is too slow to compile is a failure with its reason", "[nvrtc]") {
  const TemporaryFolder folder;
  const CommandResult result = run_attune(words("compile --target a100 --max-candidates 1 --compile-timeout 0.001 "
                                                "--seq 512 --head-dim 128 --json"),
                                          with_cache(folder.file("cache")));
  INFO(result.err);
  CHECK(result.status == 1);
  const nlohmann::json document = result.json();
  CHECK(document.at("status") == "some_failed");
  REQUIRE(document.at("failures").size() == 1);
  CHECK(document.at("failures").at(0).at("status") == "compile_timed_out");
  CHECK(document.at("failures").at(0).at("problem") == "forward bf16 b1 hq1 sq512 d128");
}

TEST_CASE("compile takes the problems of a model, and says what it leaves out", "[nvrtc]") {
  const TemporaryFolder folder;
  const std::string model = folder.file("config.json");
  write_file(model, R"({"num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 16, "attention_dropout": 0.0,
                        "layer_types": ["full_attention", "chunked_attention"]})");
  const CommandResult result = run_attune(
      words("compile --target a100 --max-candidates 1 --json --prefill 1x512,2x512 --tensor-parallel 2 --model " +
            model),
      with_cache(folder.file("cache")));
  INFO(result.err);
  REQUIRE(result.status == 0);
  CHECK(result.json().at("problems") == 2);
  CHECK(result.json().at("failed") == 0);
  CHECK_THAT(result.err, ContainsSubstring("config.json: layers of chunked_attention are no problem of Attune's"));
}

TEST_CASE("compile refuses bad lists, shards and numbers before it compiles", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string shapes = folder.file("shapes.json");
  write_file(shapes, R"([{"seq": 512, "head-dim": 64}, {"seq": 512, "head-dim": 20}])");
  const auto refused = [&](const std::string& line, const std::string& part) {
    const CommandResult result = run_attune(words("compile --target a100 " + line), with_cache(folder.file("cache")));
    INFO(result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  refused("--shapes " + shapes, "shapes.json, row 2");
  refused("--shapes " + shapes + " --seq 16", "--shapes already names the problems");
  refused("--shapes " + (folder.file("none.csv")), "none.csv cannot be read");
  const std::string model = folder.file("config.json");
  write_file(model, R"({"num_attention_heads": 6, "head_dim": 64})");
  refused("--model " + model + " --shapes " + shapes, "--shapes and --model both name the problems");
  refused("--model " + model + " --seq 16", "--model already names the problems");
  refused("--model " + model + " --tensor-parallel 4", "config.json: 6 query heads and 6 key heads cannot be shared");
  refused("--model " + model + " --tensor-parallel -1", "--tensor-parallel is -1");
  refused("--model " + model + " --tensor-parallel 0", "--tensor-parallel is 0");
  refused("--model " + model + " --prefill 4096", "--prefill: '4096' is not BATCHxTOKENS");
  refused("--decoding 8x4096", "name its --model config.json");
  refused("", "--seq");
  refused("--seq 16 --head-dim 64 --shard 3/2", "\"3/2\"");
  refused("--seq 16 --head-dim 64 --shard auto/0", "\"auto/0\"");
  refused("--seq 16 --head-dim 64 --max-candidates -1", "--max-candidates -1");
  refused("--seq 16 --head-dim 64 --workers -1", "--workers -1");
  refused("--seq 16 --head-dim 64 --compile-timeout 0", "--compile-timeout 0");
  CHECK_FALSE(std::filesystem::exists(folder.file("cache")));

  const CommandResult unwritable =
      run_attune(words("compile --target a100 --seq 16 --head-dim 64"), with_cache(shapes + "/cache"));
  CHECK(unwritable.status == 2);
  CHECK_THAT(unwritable.err, ContainsSubstring("shapes.json/cache") && ContainsSubstring("ATTUNE_CACHE_DIR"));

  std::map<std::string, std::string> environment = with_cache(folder.file("cache"));
  environment["ATTUNE_NVRTC"] = folder.file("libnvrtc.so.13");
  const CommandResult result = run_attune(words("compile --target a100 --seq 16 --head-dim 64 --json"), environment);
  CHECK(result.status == 2);
  CHECK(result.json().at("code") == "nvrtc_unavailable");
}

}  // namespace compile_test
