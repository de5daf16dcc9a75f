// What `run` makes of input files that are truncated, damaged or hold the wrong tensors: all refused before any device
// is opened.
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/cli/safetensors_file.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace safetensors_test {
namespace {

const std::vector<TensorSpec> kGood = {
    {"q", "BF16", {1, 16, 2, 64}}, {"k", "BF16", {1, 16, 2, 64}}, {"v", "BF16", {1, 16, 2, 64}}};

std::vector<std::string> run_arguments(const TemporaryFolder& folder) {
  return {"run",
          "--input",
          folder.file("qkv.safetensors"),
          "--output",
          folder.file("o.safetensors"),
          "--device",
          "emulator",
          "--target",
          "a100"};
}

/// The file is refused with a message that names it and `message`, and an output of an earlier run stays as it was.
void require_refused(const std::string& bytes, const std::vector<std::string>& message,
                     const std::vector<std::string>& flags = {}) {
  const TemporaryFolder folder;
  write_file(folder.file("qkv.safetensors"), bytes);
  write_file(folder.file("o.safetensors"), "an earlier result");
  std::vector<std::string> arguments = run_arguments(folder);
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.push_back("--json");
  const CommandResult result = run_attune(arguments, kNoGpu);
  INFO("stderr: " << result.err);
  CHECK(result.status == 2);
  for (const std::string& part : message) CHECK_THAT(result.err, ContainsSubstring(part));
  CHECK(result.json().at("status") == "error");
  CHECK(read_file(folder.file("o.safetensors")) == "an earlier result");
}

std::string with_header(const std::string& header, std::size_t data_bytes) {
  RawFile file;
  file.header = header;
  file.data.assign(data_bytes, '\0');
  return file.bytes();
}

}  // namespace

TEST_CASE("an input file that is no file", "[nogpu]") {
  const TemporaryFolder folder;
  const CommandResult missing = run_attune(run_arguments(folder));
  CHECK(missing.status == 2);
  CHECK_THAT(missing.err, ContainsSubstring("qkv.safetensors"));
  std::filesystem::create_directory(folder.file("qkv.safetensors"));
  const CommandResult directory = run_attune(run_arguments(folder));
  CHECK(directory.status == 2);
  CHECK_THAT(directory.err, ContainsSubstring("not a regular file"));
}

TEST_CASE("a truncated file is refused, wherever it is cut", "[nogpu]") {
  const std::string whole = make_raw_file(kGood).bytes();
  const std::size_t header_end = whole.size() - 3 * 16 * 2 * 64 * 2;
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, header_end - 1, header_end, header_end + 1, whole.size() - 1}) {
    DYNAMIC_SECTION("cut to " << length << " of " << whole.size()) {
      require_refused(whole.substr(0, length), {"qkv.safetensors"});
    }
  }
}

TEST_CASE("a header length that lies", "[nogpu]") {
  RawFile file = make_raw_file(kGood);
  file.claimed_header_bytes = 0x8000000000000000;
  require_refused(file.bytes(), {"9223372036854775808 bytes"});
  file.claimed_header_bytes = ~std::uint64_t{0} - 3;
  require_refused(file.bytes(), {"header"});
  file.claimed_header_bytes = file.header.size() - 4;
  require_refused(file.bytes(), {"not JSON"});
}

TEST_CASE("a damaged header is named", "[nogpu]") {
  const auto entry = [](const std::string& text) { return "{\"q\":" + text + "}"; };
  require_refused(with_header("this is no JSON", 0), {"not JSON"});
  require_refused(with_header("[1, 2]", 0), {"not a JSON object"});
  require_refused(with_header("{}", 0), {"no tensor 'q'", "nothing"});
  require_refused(with_header(std::string(100000, '['), 0), {"qkv.safetensors"});
  require_refused(with_header(entry("3"), 0), {"'q'", "data_offsets"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[1]})"), 2), {"'q'", "data_offsets"});
  require_refused(with_header(entry(R"({"dtype":7,"shape":[1],"data_offsets":[0,2]})"), 2), {"'q'", "dtype"});
  require_refused(with_header(entry(R"({"dtype":"BF17","shape":[1],"data_offsets":[0,2]})"), 2), {"'q'", "BF17"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":"1","data_offsets":[0,2]})"), 2), {"'q'", "shape"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[-1],"data_offsets":[0,2]})"), 2), {"'q'", "-1"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[1.5],"data_offsets":[0,3]})"), 3), {"'q'", "1.5"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[1],"data_offsets":[0]})"), 2), {"'q'", "[begin, end]"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[1],"data_offsets":[2,0]})"), 2), {"'q'", "[2, 0]"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,4]})"), 2),
                  {"'q'", "[0, 4]", "2 bytes"});
  require_refused(with_header(entry(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,2]})"), 2),
                  {"'q'", "4 bytes", "hold 2"});
  // 2^40 * 2^40 elements: the product must not wrap around to something that fits.
  require_refused(
      with_header(entry(R"({"dtype":"BF16","shape":[1099511627776,1099511627776],"data_offsets":[0,0]})"), 0),
      {"'q'", "overflows"});
}

TEST_CASE("tensors that overlap, leave a gap, or do not reach the end", "[nogpu]") {
  const auto two = [](const std::string& second_offsets) {
    return R"({"q":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"k":{"dtype":"BF16","shape":[2],"data_offsets":)" +
           second_offsets + "}}";
  };
  require_refused(with_header(two("[2,6]"), 6), {"overlap"});
  require_refused(with_header(two("[6,10]"), 10), {"gap"});
  require_refused(with_header(two("[4,8]"), 9), {"1 bytes follow"});
  require_refused(
      with_header(
          R"({"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      {"'q' twice"});
}

TEST_CASE("a well-formed file with the wrong tensors", "[nogpu]") {
  const auto changed = [](int index, const TensorSpec& tensor) {
    std::vector<TensorSpec> tensors = kGood;
    tensors[index] = tensor;
    return make_raw_file(tensors).bytes();
  };
  require_refused(changed(0, {"Q", "BF16", {1, 16, 2, 64}}), {"no tensor 'q'", "lower case", "Q"});
  require_refused(changed(2, {"w", "BF16", {1, 16, 2, 64}}), {"no tensor 'v'"});
  require_refused(changed(0, {"q", "F32", {1, 16, 2, 64}}), {"'q' is F32", "F16 or BF16"});
  require_refused(changed(1, {"k", "F16", {1, 16, 2, 64}}), {"'k' is F16", "one dtype"});
  require_refused(changed(2, {"v", "F32", {1, 16, 2, 64}}), {"'v' is F32"});
  require_refused(changed(0, {"q", "BF16", {16, 2, 64}}), {"[16, 2, 64]", "4 dimensions"});
  require_refused(changed(0, {"q", "BF16", {0, 16, 2, 64}}), {"[0, 16, 2, 64]", "at least 1"});
  require_refused(changed(0, {"q", "BF16", {2, 16, 2, 64}}), {"batch", "2", "1"});
  require_refused(changed(0, {"q", "BF16", {1, 16, 2, 72}}), {"head dimension", "72", "64"});
  require_refused(changed(2, {"v", "BF16", {1, 17, 2, 64}}), {"'v' has shape", "[1, 17, 2, 64]"});
  require_refused(changed(0, {"q", "BF16", {1, 16, 3, 64}}), {"3", "2", "divisible", "--layout"});
  require_refused(
      make_raw_file({{"q", "F16", {1, 4, 1, 12}}, {"k", "F16", {1, 4, 1, 12}}, {"v", "F16", {1, 4, 1, 12}}}).bytes(),
      {"head dim 12", "multiple of 8"});
}

TEST_CASE("flags that contradict the file", "[nogpu]") {
  const std::string good = make_raw_file(kGood).bytes();
  require_refused(good, {"--seq 17", "16"}, {"--seq", "17"});
  require_refused(good, {"--head-dim 128", "64"}, {"--head-dim", "128"});
  require_refused(good, {"--heads 4", "2"}, {"--heads", "4"});
  require_refused(good, {"--kv-heads 1", "2"}, {"--kv-heads", "1"});
  require_refused(good, {"--dtype fp16", "bf16"}, {"--dtype", "fp16"});
  require_refused(good, {"--problem", "does not agree"}, {"--problem", "forward bf16 b1 hq2 sq32 d64"});
  require_refused(good, {"--scale 0"}, {"--scale", "0"});
  require_refused(good, {"does not fit"}, {"--config", "sm80 q128 kv64 w3"});
}

TEST_CASE("an output that cannot be written is refused before the work", "[nogpu]") {
  const TemporaryFolder folder;
  write_file(folder.file("qkv.safetensors"), make_raw_file(kGood).bytes());
  for (const std::string& output :
       {folder.file("absent/o.safetensors"), folder.path().string(), std::string("/dev/full/o")}) {
    const CommandResult result =
        run_attune({"run", "--input", folder.file("qkv.safetensors"), "--output", output, "--target", "a100"});
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(output));
  }
}

TEST_CASE("input writes random normal tensors: the same for a seed, others for another", "[nogpu]") {
  const TemporaryFolder folder;
  const auto make = [&](const std::string& name, const std::string& flags) {
    std::vector<std::string> arguments =
        words("input --dtype fp16 --batch 2 --heads 4 --kv-heads 2 --seq 50 --kv-seq 70 --head-dim 40 " + flags);
    arguments.insert(arguments.end(), {"--output", folder.file(name)});
    REQUIRE(run_attune(arguments).status == 0);
    return read_file(folder.file(name));
  };
  const std::string first = make("a", "--seed 5");
  CHECK(first == make("b", "--seed 5"));
  const ParsedFile a(first), c(make("c", "--seed 6")), transposed(make("d", "--seed 5 --layout bhsd"));
  CHECK(a.data != c.data);
  CHECK(a.shape("q") == std::vector<std::uint64_t>{2, 50, 4, 40});
  CHECK(a.shape("k") == std::vector<std::uint64_t>{2, 70, 2, 40});
  CHECK(a.shape("v") == a.shape("k"));
  CHECK(a.bytes_of("k") != a.bytes_of("v"));
  CHECK(transposed.shape("q") == std::vector<std::uint64_t>{2, 4, 50, 40});
  CHECK(a.header.at("q").at("dtype") == "F16");
  CHECK(a.header.at("__metadata__").at("seed") == "5");
  // The data begins at a multiple of 8 bytes.
  CHECK((first.size() - a.data.size()) % 8 == 0);
}

}  // namespace safetensors_test
