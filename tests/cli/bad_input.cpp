// Bad input gets exit status 2 and a message that names what is wrong; with --json the same message in the one document
// on stdout.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace bad_input_test {
namespace {

struct BadCase {
  std::string line;
  std::vector<std::string> message;  // what stderr must name
};

void require_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& message) {
  const CommandResult result = run_attune(arguments, kNoGpu);
  INFO("stderr: " << result.err << "\nstdout: " << result.out);
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  for (const std::string& part : message) CHECK_THAT(result.err, ContainsSubstring(part));

  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const CommandResult as_json = run_attune(with_json, kNoGpu);
  CHECK(as_json.status == 2);
  const nlohmann::json document = as_json.json();
  CHECK(document.at("status") == "error");
  for (const std::string& part : message)
    CHECK_THAT(document.at("message").get<std::string>(), ContainsSubstring(part));
}

}  // namespace

TEST_CASE("a problem out of range is refused by every verb that takes one", "[nogpu]") {
  const std::string verb = GENERATE("check", "show plan", "tune", "bench", "db best", "input --output /nonexistent/x");
  const BadCase bad = GENERATE(values<BadCase>({
      {"--seq 16 --head-dim 12", {"head dim 12", "multiple of 8"}},
      {"--seq 16 --head-dim 264", {"head dim 264", "256"}},
      {"--seq 16 --head-dim 0", {"head dim 0"}},
      {"--seq 16 --head-dim -8", {"head dim -8"}},
      {"--seq 0 --head-dim 64", {"query length 0", "at least 1"}},
      {"--seq -3 --head-dim 64", {"query length -3"}},
      {"--seq 16 --kv-seq 0 --head-dim 64", {"length 0"}},
      {"--seq 16 --head-dim 64 --batch 0", {"batch 0"}},
      {"--seq 16 --head-dim 64 --heads -2", {"heads -2"}},
      {"--seq 16 --head-dim 64 --heads 3 --kv-heads 2", {"3", "divisible", "2"}},
  }));
  DYNAMIC_SECTION(verb << " " << bad.line) { require_refused(words(verb + " " + bad.line), bad.message); }
}

TEST_CASE("flags with bad values are named", "[nogpu]") {
  const BadCase bad = GENERATE(values<BadCase>({
      {"check --seq 16 --head-dim 64 --scale 0", {"--scale 0", "positive"}},
      {"check --seq 16 --head-dim 64 --scale -0.5", {"--scale -0.5", "positive"}},
      {"check --seq 16 --head-dim 64 --softcap -0.5", {"softcap -0.5", "positive"}},
      {"check --seq 16 --head-dim 64 --dropout 1", {"dropout 1", "less than 1"}},
      {"check --seq 16 --head-dim 64 --dropout -0.5", {"--dropout -0.5", "must be 0 or positive"}},
      {"check --seq 16 --head-dim 64 --softcap 1e-60", {"--softcap 1e-60", "positive"}},
      {"check --seq 16 --head-dim 64 --dropout 0.5 --invariant", {"dropout", "invariant"}},
      {"check --seq 16 --head-dim 64 --scale nan", {"--scale nan", "finite"}},
      {"check --seq 16 --head-dim 64 --scale inf", {"--scale inf", "finite"}},
      {"check --seq 16 --head-dim 64 --scale 1e39", {"--scale 1e+39", "finite"}},
      {"check --seq 16 --head-dim 64 --scale 1e-60", {"--scale 1e-60", "positive"}},
      {"check --seq 16 --head-dim 64 --dtype fp8", {"--dtype fp8", "bf16"}},
      {"check --seq 16 --head-dim 64 --mask diagonal", {"--mask diagonal", "causal-top-left"}},
      {"check --seq 16 --head-dim 64 --mask causal@", {"--mask causal@", "whole number"}},
      {"check --seq 16 --head-dim 64 --mask causal@7x", {"--mask causal@7x", "whole number"}},
      {"check --seq 16 --head-dim 64 --mask window=3", {"--mask window=3", "window=LEFT,RIGHT"}},
      {"check --seq 16 --head-dim 64 --mask causal@2 --causal", {"--causal", "--mask causal@2"}},
      {"check --seq 16 --head-dim 64 --layout sbhd", {"--layout sbhd", "bshd"}},
      {"check --seq 16 --head-dim 64 --pass sideways", {"--pass sideways", "backward"}},
      {"input --output y.safetensors --seq 16 --head-dim 64 --pass backward", {"--pass backward", "forward"}},
      {"input --output y.safetensors --problem backward", {"backward", "forward"}},
      {"explain --seq 16 --head-dim 64 --deterministic", {"deterministic", "backward"}},
      {"check --deterministic --problem backward", {"--deterministic", "--problem"}},
      {"check --seq sixteen --head-dim 64", {"--seq", "sixteen"}},
      {"check --seq 16 --head-dim 64.5", {"--head-dim", "64.5"}},
      {"check --seq 16 --head-dim 64 --seed -1", {"--seed", "-1"}},
      {"check --seq 99999999999999999999 --head-dim 64", {"--seq", "99999999999999999999", "too large"}},
      {"check --seq 16 --head-dim 4294967360", {"--head-dim", "4294967360", "too large"}},
      {"check --seq 0x10 --head-dim 64", {"--seq", "0x10"}},
      {"check --head-dim 64", {"needs --seq"}},
      {"check --seq 16", {"needs --head-dim"}},
      {"check --seq 16 --head-dim 64 --causal --mask none", {"--causal", "--mask none"}},
      {"check --seq 16 --seq 17 --head-dim 64", {"--seq"}},
      {"check --batch 3000000000 --seq 16 --head-dim 64", {"3000000000"}},
      {"check --batch 1000000 --heads 1000 --seq 2000000000 --head-dim 256", {"too large"}},
      {"check --seq 3000000000 --head-dim 64", {"3000000000"}},
      {"check --seq 16 --head-dim 64 --device gpu", {"--device gpu", "cuda:N or emulator"}},
      {"check --seq 16 --head-dim 64 --device cuda:-1", {"--device cuda:-1", "cuda:N or emulator"}},
      {"check --seq 16 --head-dim 64 --device cuda:1x", {"--device cuda:1x"}},
      {"check --seq 16 --head-dim 64 --device cuda:0 --target a100", {"--target a100", "leave one of them out"}},
      {"check --seq 16 --head-dim 64 --device cuda:0 --async lazy", {"--async", "emulator"}},
      {"check --seq 16 --head-dim 64 --device emulator --async late", {"--async late", "eager or lazy"}},
      {"check --seq 16 --head-dim 64 --device emulator --schedule fifo", {"--schedule fifo", "round-robin or random"}},
      {"check --seq 16 --head-dim 64 --device emulator --emulator-seed 3", {"--emulator-seed", "--schedule random"}},
      {"check --seq 16 --head-dim 64 --target v100", {"v100", "a100", "h200"}},
      {"show source --seq 16 --head-dim 64 --target sm_70", {"sm_70", "sm_80"}},
      {"show everything --seq 16 --head-dim 64", {"everything", "source"}},
      {"show plan --seq 16 --head-dim 64 --limit -1", {"--limit"}},
      {"tune --seq 16 --head-dim 64 --budget 0", {"--budget 0"}},
      {"tune --seq 16 --head-dim 64 --budget nan", {"--budget nan"}},
      {"tune --seq 16 --head-dim 64 --budget 1d", {"--budget 1d", "10m or 2h"}},
      {"tune --seq 16 --head-dim 64 --budget -1m", {"--budget -1m"}},
      {"tune --seq 16 --head-dim 64 --time-limit 0", {"--time-limit 0"}},
      {"tune --seq 16 --head-dim 64 --time-limit 1d", {"--time-limit 1d", "10m or 2h"}},
      {"tune --seq 16 --head-dim 64 --max-candidates -1", {"--max-candidates -1"}},
      {"tune --seq 16 --head-dim 64 --trial-timeout -1", {"--trial-timeout -1"}},
      {"bench --seq 16 --head-dim 64 --seconds 0", {"--seconds 0"}},
      {"bench --seq 16 --head-dim 64 --spread 0", {"--spread 0", "positive"}},
      {"bench --seq 16 --head-dim 64 --spread -8", {"--spread -8", "positive"}},
      {"bench --seq 16 --head-dim 64 --spread nan", {"--spread nan", "positive"}},
      {"bench --seq 16 --head-dim 64 --spread 1e40", {"--spread 1e+40", "finite"}},
      {"compare a.db b.db --spread 8", {"--spread", "--now"}},
      {"compare a.db b.db --spread 0", {"--spread 0", "positive"}},
      {"check --seq 16 --head-dim 64 --algorithm fa3", {"fa3", "standard, online, fa1 or fa2"}},
      {"check --seq 16 --head-dim 64 --algorithm fa1 --pass backward", {"--algorithm fa1", "forward"}},
      {"bench --seq 16 --head-dim 64 --algorithm fa1,fa1", {"fa1,fa1", "twice"}},
      {"bench --seq 16 --head-dim 64 --algorithm fa1,", {"algorithm ''"}},
      {"bench --seq 16 --head-dim 64 --algorithm fa1 --config sm80", {"--algorithm fa1", "--config"}},
      {"show source --seq 16 --head-dim 64 --algorithm all", {"one --algorithm"}},
      {"show plan --seq 16 --head-dim 64 --algorithm fa1 --config sm80", {"--algorithm fa1", "--config"}},
      {"show space --seq 16 --head-dim 64 --algorithm fa1", {"show space", "--algorithm"}},
      {"show source --seq 16 --head-dim 64 --launch 2", {"--launch 2", "1 to 1"}},
      {"show plan --seq 16 --head-dim 64 --launch 1", {"--launch", "show plan"}},
      {"run --output o.safetensors", {"--input"}},
      {"input --seq 16 --head-dim 64", {"--output"}},
      {"check --seq 16 --head-dim 64 --frobnicate", {"--frobnicate", "attune check --help"}},
      {"frobnicate", {"unknown verb 'frobnicate'; verbs: run, check", "tune", "attune --help"}},
      {"db", {"verb is missing", "attune db --help"}},
      {"db forget", {"unknown verb 'forget'; verbs: list", "attune db --help"}},
  }));
  DYNAMIC_SECTION(bad.line) { require_refused(words(bad.line), bad.message); }
}

TEST_CASE("no arguments at all: exit status 2 and a hint", "[nogpu]") {
  const CommandResult result = run_attune({});
  CHECK(result.status == 2);
  CHECK_THAT(result.err, ContainsSubstring("attune --help"));
}

TEST_CASE("--problem takes the whole problem, and nothing beside it", "[nogpu]") {
  require_refused({"check", "--problem", "forward bf16 b1 hq1 sq16 d64", "--seq", "16"}, {"--problem", "--seq"});
  require_refused({"check", "--problem", "forward bf16 b1 hq1 sq16 d64", "--causal"}, {"--problem", "--causal"});
  require_refused({"check", "--problem", "forward bf16 b1 hq1 sq16 d64 sideways"}, {"sideways"});
  require_refused({"check", "--problem", "forward bf16 b1 hq1 sq16 d20"}, {"head dim 20"});
  require_refused({"check", "--problem", ""}, {"--problem", "empty"});
}

TEST_CASE("a config that does not parse names the word; one that does not fit names the numbers", "[nogpu]") {
  const std::vector<std::string> check = words("check --seq 16 --head-dim 64 --target a100 --config");
  const auto with = [&](const std::string& config) {
    std::vector<std::string> arguments = check;
    arguments.push_back(config);
    return arguments;
  };
  require_refused(with("fancy"), {"fancy", "sm80"});
  require_refused(with("sm80 q128 zz9"), {"zz9"});
  require_refused(with("sm80 q99999999999999999999"), {"q99999999999999999999"});
  require_refused(with(""), {"--config", "empty"});
  require_refused(words("check --config= --seq 16 --head-dim 64"), {"--config= must not be empty"});
  require_refused(words("db best --target nonsense"), {"nonsense", "known targets"});
  require_refused(with("sm80 q128 kv64 w3 st2"), {"does not fit", "q128", "w3", "attune show space"});
  require_refused(with("sm80 q128 kv64 w0 st2"), {"does not fit", "w0"});
  require_refused(with("sm80 q64 kv256 w4 st4 qsmem"), {"does not fit", "shared memory", "166912"});
  require_refused(with("sm80 q64 kv64 w4 st2 even-tiles"), {"does not fit", "16"});
}

TEST_CASE("cuda without a GPU says what is missing and what runs without one", "[nogpu]") {
  for (const std::string verb : {"check", "bench", "tune", "show plan", "db best"}) {
    const std::string device = GENERATE("cuda", "cuda:0", "cuda:5");
    require_refused(words(verb + " --seq 16 --head-dim 64 --device " + device),
                    {"--device cuda:", "GPU", "--device emulator"});
  }
}

TEST_CASE("a missing NVRTC is named with what to do, and show source needs none", "[nogpu]") {
  const TemporaryFolder folder;
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_NVRTC"] = folder.file("libnvrtc.so.13");
  environment["ATTUNE_CACHE_DIR"] = folder.file("cache");
  const CommandResult ptx = run_attune(words("show ptx --seq 16 --head-dim 64 --target a100 --json"), environment);
  CHECK(ptx.status == 2);
  CHECK(ptx.json().at("code") == "nvrtc_unavailable");
  CHECK_THAT(ptx.err, ContainsSubstring("NVRTC"));
  CHECK(run_attune(words("show source --seq 16 --head-dim 64 --target a100"), environment).status == 0);
  const CommandResult devices = run_attune(words("devices --json"), environment);
  CHECK(devices.status == 0);
  CHECK(devices.json().at("nvrtc").contains("missing"));
}

TEST_CASE("an NVRTC that is a pipe or a folder is not waited for", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_CACHE_DIR"] = folder.file("cache");
  for (const std::string& path : {pipe, folder.file("")}) {
    environment["ATTUNE_NVRTC"] = path;
    const CommandResult ptx = run_attune(words("show ptx --seq 16 --head-dim 64 --target a100"), environment);
    CHECK(ptx.status == 2);
    CHECK_THAT(ptx.err, ContainsSubstring(path + ": is no file"));
  }
}

TEST_CASE("bench refuses a device whose times mean nothing", "[nogpu]") {
  require_refused(words("bench --seq 16 --head-dim 64 --device emulator --target h200"),
                  {"emulator", "cannot time", "--device cuda:N"});
}

// The matrix: each verb with each kind of bad file, of bad place to write and of bad value. Whatever it is, the command
// ends with the status that is documented and one line that says what is wrong, and no file changes.

namespace {

namespace fs = std::filesystem;

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// A folder with one sound file of each kind, and bad ones.
class Matrix {
 public:
  Matrix() {
    write_file(folder_.file("export.json"), R"({"format": "attune measurements", "version": 1, "measurements": [
      {"problem": "forward bf16 b1 hq1 sq64 d64", "device": "NVIDIA H200", "sm_count": 132,
       "config": "sm80 q64 kv64 w4 st2", "status": "ok", "rigor": "measure", "median_us": 10, "p20_us": 9, "p80_us": 11,
       "templates_hash": "t", "compiler": "c", "driver": "d", "protocol": "p", "attune_version": "0.1.0",
       "created_at": "2025-01-31T12:00:00Z"}]})");
    REQUIRE(run_attune({"db", "import", folder_.file("export.json"), "--database", folder_.file("tuning.db")}).status ==
            0);
    REQUIRE(run_attune(words("input --seq 16 --head-dim 8 --output " + (folder_.file("qkv")))).status == 0);
    write_file(folder_.file("other"), "of somebody else");
    fs::create_hard_link(folder_.file("export.json"), folder_.file("export_again"));
    fs::create_symlink(folder_.file("tuning.db"), folder_.file("link"));
    fs::create_directory(folder_.file("folder.json"));
    write_file(folder_.file("empty.json"), "");
    write_file(folder_.file("binary.json"), "\x7f" + std::string("ELF\0\xff\xfe\0\0\x1b[2J", 12));
    write_file(folder_.file("number.json"), "7");
    write_file(folder_.file("huge.json"), R"([{"seq": 1e9999, "head-dim": 64}])");
    write_file(folder_.file("float.json"), R"({"format": "attune comparison", "version": 1e300})");
    write_file(folder_.file("twice.json"), R"({"format": 1, "format": 2})");
    write_file(folder_.file("deep.json"), repeated("[", 100'000));
    write_file(folder_.file("deep_objects.json"), repeated("{\"a\":", 100'000));
    const std::string deep = repeated("[", 100'000) + repeated("]", 100'000);
    write_file(folder_.file("deep_version.json"),
               R"({"format": "attune measurements", "version": )" + deep + R"(, "measurements": []})");
    const std::string header = R"({"q": {"dtype": "F16", "shape": [)" + deep + R"(], "data_offsets": [0, 2]}})";
    std::uint64_t header_bytes = header.size();
    write_file(folder_.file("deep_header.json"),
               std::string(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes)) + header + "xx");
    write_file(folder_.file("escape.json"), "[\"forward \x1b]0;title\x07 sq64 d64\"]");
    REQUIRE(::mkfifo((folder_.file("pipe.json")).c_str(), 0600) == 0);
    write_file(folder_.file("unreadable.json"), "[]");
    ::chmod((folder_.file("unreadable.json")).c_str(), 0);
    before_ = state();
  }

  /// "@" is the file; NAME of a sound one in capitals is that one's path.
  std::vector<std::string> arguments(const std::string& line, const std::string& file) const {
    std::vector<std::string> list = words(line);
    const std::map<std::string, std::string> names = {
        {"EXPORT", "export.json"}, {"TUNING", "tuning.db"}, {"QKV", "qkv"}, {"NEW", "new"}};
    for (std::string& word : list) {
      if (word == "@") word = file.empty() || file.front() == '/' ? file : folder_.file(file);
      if (const auto found = names.find(word); found != names.end()) word = folder_.file(found->second);
    }
    return list;
  }

  void require_nothing_done(const std::vector<std::string>& arguments, const std::vector<int>& statuses) const {
    std::map<std::string, std::string> environment = kNoGpu;
    environment["ATTUNE_CACHE_DIR"] = folder_.file("cache");
    const CommandResult result = run_attune(arguments, environment);
    INFO("status " << result.status << "\nstderr: " << result.err << "\nstdout: " << result.out);
    CHECK(std::find(statuses.begin(), statuses.end(), result.status) != statuses.end());
    if (statuses == std::vector{2}) {
      CHECK(result.out.empty());
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
      CHECK(result.err.size() > 20);
      CHECK(result.err.size() < 2000);
    }
    CHECK(state() == before_);
  }

 private:
  // Every file and its bytes; SQLite may make and remove a log beside a database that it reads.
  std::map<std::string, std::string> state() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with("-wal") || name.ends_with("-shm")) continue;
      const bool bytes = entry.is_regular_file() && name != "unreadable.json";
      found[name] = bytes ? read_file(entry.path().string()) : "no file";
    }
    return found;
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> before_;
};

}  // namespace

TEST_CASE("each verb that reads a file, with each bad file", "[nogpu]") {
  const Matrix matrix;
  struct Reader {
    std::string line;
    std::vector<int> statuses;
  };
  const std::vector<Reader> readers = {{"run --input @ --output NEW --device emulator --target h200", {2}},
                                       {"db import @ --database TUNING", {2}},
                                       {"db ship EXPORT @ --output NEW", {2}},
                                       {"tune --shapes @ --device emulator --database NEW", {2}},
                                       {"compile --shapes @ --target h200", {2}},
                                       {"report --output NEW --database TUNING --peers @", {2}},
                                       {"db merge @ --database TUNING", {1, 2}}};
  std::vector<std::string> files = {"none.json",        "folder.json",       "empty.json", "binary.json",
                                    "number.json",      "huge.json",         "float.json", "twice.json",
                                    "deep.json",        "escape.json",       "pipe.json",  "deep_objects.json",
                                    "deep_header.json", "deep_version.json", "/dev/zero",  "/dev/null"};
  if (::geteuid() != 0) files.push_back("unreadable.json");
  for (const Reader& reader : readers) {
    for (const std::string& file : files) {
      DYNAMIC_SECTION(reader.line << ": " << file) {
        matrix.require_nothing_done(matrix.arguments(reader.line, file), reader.statuses);
      }
    }
  }
}

TEST_CASE("each verb that reads a database, with each file that is none", "[nogpu]") {
  const Matrix matrix;
  for (const std::string line : {"db list --database @", "db best --database @", "db info --database @",
                                 "db doctor --database @", "db export --database @", "report --output NEW --database @",
                                 "compare TUNING @", "explain --seq 16 --head-dim 64 --target h200 --database @",
                                 "show plan --seq 16 --head-dim 64 --target h200 --database @"}) {
    const bool doctor = line.starts_with("db doctor");  // whose findings are its answer, and its status 1
    for (const std::string file :
         {"folder.json", "binary.json", "number.json", "deep.json", "pipe.json", "/dev/zero"}) {
      DYNAMIC_SECTION(line << ": " << file) {
        matrix.require_nothing_done(matrix.arguments(line, file), doctor ? std::vector{1} : std::vector{2});
      }
    }
    DYNAMIC_SECTION(line << ": no file") { matrix.require_nothing_done(matrix.arguments(line, "none.json"), {1, 2}); }
    DYNAMIC_SECTION(line << ": an empty file") {
      matrix.require_nothing_done(matrix.arguments(line, "empty.json"), {0, 1, 2});
    }
  }
}

TEST_CASE("each verb that writes a file, with each place that is none for it", "[nogpu]") {
  const Matrix matrix;
  for (const std::string line :
       {"db export --database TUNING --output @", "db ship EXPORT --output @",
        "report --database TUNING --output @ --peers EXPORT", "input --seq 16 --head-dim 8 --output @",
        "run --input QKV --device emulator --target h200 --database TUNING --output @"}) {
    for (const std::string place : {"", "folder.json", "none/new", "tuning.db", "link", "/dev/random", "other/new"}) {
      if (line.starts_with("db ship") && place == "none/new") continue;  // it makes the folder
      DYNAMIC_SECTION(line << ": " << place) { matrix.require_nothing_done(matrix.arguments(line, place), {2}); }
    }
  }
  matrix.require_nothing_done(matrix.arguments("db ship EXPORT --output @", "export.json"), {2});
  matrix.require_nothing_done(matrix.arguments("db ship EXPORT --output @", "export_again"), {2});
  matrix.require_nothing_done(matrix.arguments("report --database TUNING --peers EXPORT --output @", "export.json"),
                              {2});
  matrix.require_nothing_done(matrix.arguments("run --input QKV --device emulator --target h200 --output @", "qkv"),
                              {2});
  for (const std::string line : {"db ship EXPORT --json --output -", "input --seq 16 --head-dim 8 --json --output -",
                                 "run --input QKV --device emulator --json --output /dev/stdout",
                                 "report --database TUNING --json --output -"}) {
    DYNAMIC_SECTION(line) {
      const CommandResult result = run_attune(matrix.arguments(line, ""), kNoGpu);
      CHECK(result.status == 2);
      CHECK_THAT(result.json().at("message").get<std::string>(), ContainsSubstring("--json"));
    }
  }
}

TEST_CASE("each verb, with flags that it does not know, that lack a value, and values that are none", "[nogpu]") {
  const Matrix matrix;
  struct Line {
    std::string verb;
    std::vector<std::string> whole, fractions, texts;  // flags by what they take
  };
  const std::vector<Line> lines = {
      {"run --input QKV --output NEW --device emulator --target h200",
       {"--emulator-seed"},
       {"--scale"},
       {"--layout", "--config", "--device", "--mask"}},
      {"check --seq 16 --head-dim 64 --device emulator --target h200",
       {"--batch", "--heads", "--kv-heads", "--kv-seq", "--seed"},
       {"--scale"},
       {"--dtype", "--pass", "--mask", "--layout", "--algorithm"}},
      {"show plan --seq 16 --head-dim 64 --target h200", {"--limit", "--launch"}, {}, {"--config", "--algorithm"}},
      {"tune --seq 16 --head-dim 64 --device emulator --target h200 --database NEW",
       {"--max-candidates"},
       {"--budget", "--trial-timeout"},
       {"--rigor", "--space", "--progress"}},
      {"bench --seq 16 --head-dim 64 --device emulator --target h200", {"--seed"}, {"--seconds"}, {"--config"}},
      {"explain --seq 16 --head-dim 64 --target h200", {"--limit"}, {"--scale"}, {"--config"}},
      {"compare TUNING TUNING", {}, {"--margin"}, {}},
      {"compile --seq 16 --head-dim 64 --target h200",
       {"--max-candidates", "--workers"},
       {"--compile-timeout"},
       {"--shard"}},
      {"report --output NEW --database TUNING", {"--rows"}, {}, {"--target"}},
      {"input --output NEW --seq 16 --head-dim 64", {"--seed"}, {}, {"--dtype"}},
      {"devices", {}, {}, {}},
      {"db list --database TUNING", {}, {}, {}},
      {"db best --database TUNING", {"--seq"}, {}, {}},
      {"db info --database TUNING", {}, {}, {}},
      {"db export --database TUNING", {}, {}, {}},
      {"db import EXPORT --database TUNING", {}, {}, {}},
      {"db merge TUNING --database NEW", {}, {}, {}},
      {"db prune --database TUNING --dry-run", {"--keep-latest", "--failed-older-than"}, {}, {}},
      {"db ship EXPORT --output NEW", {}, {}, {}},
      {"db doctor --database TUNING", {}, {}, {}},
      {"db vacuum --database TUNING", {}, {}, {}}};
  for (const Line& line : lines) {
    DYNAMIC_SECTION(line.verb) {
      const std::vector<std::string> base = matrix.arguments(line.verb, "");
      const auto refused = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = base;
        arguments.insert(arguments.end(), more.begin(), more.end());
        std::string said;
        for (const std::string& word : more) said += word + " ";
        INFO(said);
        matrix.require_nothing_done(arguments, {2});
      };
      refused({"--frobnicate"});
      refused({"--frobnicate=3"});
      for (const std::string& flag : line.whole) {
        refused({flag});
        for (const char* value : {"x", "", "1.5", "99999999999999999999", "nan"}) refused({flag, value});
        refused({flag + "=-1"});
      }
      for (const std::string& flag : line.fractions) {
        refused({flag});
        for (const char* value : {"x", "nan", "inf", "1e9999"}) refused({flag, value});
        refused({flag + "=-1"});
      }
      for (const std::string& flag : line.texts) {
        refused({flag});
        refused({flag, ""});
        refused({flag, "nonsense"});
        refused({flag, "\x1b[2J"});
      }
    }
  }
}

}  // namespace bad_input_test
