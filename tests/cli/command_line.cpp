// What the command makes of words that it does not know, and what it tells of itself: help, completion, JSON.
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace {

// The verbs that `attune help` lists, those of db as "db list".
std::vector<std::string> all_verbs() {
  const auto listed = [](const std::string& help) {
    std::vector<std::string> names;
    bool inside = false;
    for (std::size_t at = 0; at < help.size();) {
      const std::size_t end = std::min(help.find('\n', at), help.size());
      const std::string line = help.substr(at, end - at);
      at = end + 1;
      if (line == "Subcommands:") {
        inside = true;
      } else if (line.empty() || line[0] != ' ') {
        inside = false;
      } else if (inside && line.size() > 2 && line[2] != ' ') {
        names.push_back(words(line).front());
      }
    }
    return names;
  };
  std::vector<std::string> verbs;
  for (const std::string& verb : listed(run_attune({"help"}).out)) {
    if (verb != "db") verbs.push_back(verb);
  }
  for (const std::string& verb : listed(run_attune({"help", "db"}).out)) verbs.push_back("db " + verb);
  return verbs;
}

// What bash offers for the last of these words.
std::set<std::string> offered(const std::string& script_path, const std::string& line) {
  const std::string command = "bash -c '. " + script_path + "; COMP_WORDS=(" + line +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _attune; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  REQUIRE(pipe);
  std::set<std::string> found;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    const std::string text = buffer.data();
    found.insert(text.substr(0, text.find('\n')));
  }
  return found;
}

}  // namespace

TEST_CASE("a mistyped flag, verb or value is refused with what was probably meant", "[nogpu]") {
  struct Slip {
    std::string line, meant;
  };
  const Slip slip = GENERATE(values<Slip>({
      {"check --heds 2 --seq 16 --head-dim 64", "did you mean --heads?"},
      {"check --head_dim 64 --seq 16", "did you mean --head-dim?"},
      {"check -heads 2 --seq 16 --head-dim 64", "did you mean --heads?"},
      {"check --seq 16 --head-dim 64 -causal", "did you mean --causal?"},
      {"tune --rigour patient", "did you mean --rigor?"},
      {"chekc --seq 16", "did you mean check?"},
      {"db lsit", "did you mean list?"},
      {"tun --seq 16", "did you mean tune?"},
      {"tune --sequence 16", "did you mean --seq?"},
      {"", "a verb is missing: run, check, show, tune"},
      {"show sorce --seq 16 --head-dim 64", "did you mean source?"},
      {"show plan --seq 16 --head-dim 64 --dtype bf61", "did you mean bf16?"},
      {"show plan --seq 16 --head-dim 64 --mask casual", "did you mean causal?"},
      {"show plan --seq 16 --head-dim 64 --target h2000", "did you mean h200?"},
      {"check --seq 16 --head-dim 64 --async layz", "did you mean lazy?"},
      {"completion bsh", "did you mean bash?"},
  }));
  const CommandResult result = run_attune(words(slip.line), kNoGpu);
  INFO(slip.line << "\nstderr: " << result.err);
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, ContainsSubstring(slip.meant));
}

TEST_CASE("nothing is suggested for what resembles nothing", "[nogpu]") {
  const CommandResult result = run_attune(words("check --frobnicate 2 --seq 16 --head-dim 64"), kNoGpu);
  CHECK(result.status == 2);
  CHECK_THAT(result.err, ContainsSubstring("unknown flag --frobnicate"));
  CHECK_THAT(result.err, !ContainsSubstring("did you mean"));
}

TEST_CASE("a GPU that is too old is told from one that is not known", "[nogpu]") {
  for (const std::string target : {"v100", "t4", "sm_70", "sm_75", "RTX2080Ti"}) {
    const CommandResult result = run_attune(words("show plan --seq 16 --head-dim 64 --target " + target), kNoGpu);
    INFO(target << ": " << result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring("needs compute capability 8.0"));
  }
  const CommandResult unknown = run_attune(words("show plan --seq 16 --head-dim 64 --target quux"), kNoGpu);
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("known targets"));
}

TEST_CASE("help of every verb, and what it needs", "[nogpu]") {
  const std::vector<std::string> verbs = all_verbs();
  REQUIRE(verbs.size() >= 20);
  for (const std::string& verb : verbs) {
    const CommandResult by_verb = run_attune(words("help " + verb)), by_flag = run_attune(words(verb + " --help"));
    INFO(verb);
    CHECK(by_verb.status == 0);
    CHECK(by_verb.out == by_flag.out);
    CHECK_THAT(by_verb.out, ContainsSubstring("--json"));
    CHECK_THAT(by_verb.out, ContainsSubstring("Example:"));
  }
  for (const std::string verb : {"check", "tune", "explain"}) {
    const std::string help = run_attune({"help", verb}).out;
    for (const std::string flag : {"--seq", "--head-dim"}) {
      const std::size_t at = help.find("  " + flag + " ");
      REQUIRE(at != std::string::npos);
      CHECK_THAT(help.substr(at, 200), ContainsSubstring("required"));
    }
  }
  CHECK(run_attune({"help", "nothing"}).status == 2);
}

TEST_CASE("no line of help is longer than a hundred columns, or than the terminal", "[nogpu]") {
  std::vector<std::string> verbs = all_verbs();
  verbs.insert(verbs.end(), {"", "db"});
  for (const std::string& verb : verbs) {
    const std::string help = run_attune(words("help " + verb)).out;
    for (std::size_t at = 0; at < help.size();) {
      const std::size_t end = std::min(help.find('\n', at), help.size());
      INFO(verb << ": " << help.substr(at, end - at));
      CHECK(end - at <= 100);
      at = end + 1;
    }
  }
  const std::string program = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attune").string();
  const std::string terminal = "script -qec 'stty cols 70; " + program + " help tune' /dev/null | tr -d '\\r'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(terminal.c_str(), "r"), &::pclose);
  REQUIRE(pipe);
  std::array<char, 4096> line{};
  int lines = 0;
  for (; std::fgets(line.data(), line.size(), pipe.get()) != nullptr; ++lines) {
    const std::string text = line.data();
    INFO(text);
    CHECK((text.size() <= 71 || words(text).size() == 1));
  }
  CHECK(lines > 50);
}

TEST_CASE("the program and a verb with verbs of its own help when they are called alone", "[nogpu]") {
  for (const std::string line : {"", "db"}) {
    const CommandResult alone = run_attune(words(line), kNoGpu);
    CHECK(alone.status == 2);
    CHECK(alone.out.empty());
    CHECK_THAT(alone.err, ContainsSubstring(run_attune(words("help " + line)).out));
    CHECK_THAT(alone.err, ContainsSubstring("a verb is missing: "));
    const CommandResult json = run_attune(words(line + " --json"), kNoGpu);
    CHECK(json.status == 2);
    CHECK_THAT(json.err, !ContainsSubstring("Subcommands:"));
  }
}

TEST_CASE("with --json every verb prints one document, whatever comes of it", "[nogpu]") {
  for (const std::string& verb : all_verbs()) {
    INFO(verb);
    const CommandResult bare = run_attune(words(verb + " --json"), kNoGpu);
    CHECK(bare.json().is_object());
    const CommandResult refused = run_attune(words(verb + " --no-such-flag --json"), kNoGpu);
    CHECK(refused.status == 2);
    CHECK(refused.json().at("status") == "error");
    const CommandResult help = run_attune(words(verb + " --help --json"), kNoGpu);
    CHECK(help.status == 0);
    CHECK_THAT(help.json().at("text").get<std::string>(), ContainsSubstring("Example:"));
  }
}

TEST_CASE("a shell completes verbs, flags and their values", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string script = folder.file("attune.bash");
  const CommandResult bash = run_attune({"completion", "bash"});
  REQUIRE(bash.status == 0);
  write_file(script, bash.out);
  CHECK(offered(script, "attune ex") == std::set<std::string>{"explain", "export"});
  CHECK(offered(script, "attune db b") == std::set<std::string>{"best"});
  CHECK(offered(script, "attune check --head-") == std::set<std::string>{"--head-dim"});
  CHECK(offered(script, "attune check --seq 4 --dtype b") == std::set<std::string>{"bf16"});
  CHECK(offered(script, "attune check --target h2") == std::set<std::string>{"h20", "h200", "h200-nvl"});
  CHECK(offered(script, "attune show so") == std::set<std::string>{"source"});
  CHECK(offered(script, "attune db best --kv-s") == std::set<std::string>{"--kv-seq"});
  CHECK(offered(script, "attune wor").count("worker") == 0);
  // Where a value or a file is wanted no flag is offered, nor a file where a number is.
  const std::string file = folder.file("results.json");
  write_file(file, "[]");
  const std::string begun = folder.file("res");
  for (const std::string line : {"attune db import ", "attune db import --database ", "attune tune --shapes ",
                                 "attune compare ", "attune db export --output ", "attune pack --show "}) {
    INFO(line);
    CHECK(offered(script, line + begun) == std::set<std::string>{file});
    for (const std::string& word : offered(script, line + "\"\"")) CHECK_FALSE(word.starts_with("--"));
  }
  CHECK(offered(script, "attune check --seq \"\"") == std::set<std::string>{""});
  CHECK(offered(script, "attune check --dtype = b") == std::set<std::string>{"bf16"});
  CHECK(offered(script, "attune check --dtype =").count("fp16") == 1);
  CHECK(offered(script, "attune db import --data") == std::set<std::string>{"--database"});
  CHECK(offered(script, "attune check \"\"").count("--head-dim") == 1);

  CHECK(run_attune({"completion", "zsh"}).out.starts_with("#compdef attune"));
  const std::string fish = run_attune({"completion", "fish"}).out;
  CHECK_THAT(fish, ContainsSubstring("-l head-dim"));
  CHECK_THAT(fish, ContainsSubstring("-a 'bf16 fp16'"));
  CHECK(run_attune({"completion", "fish", "--json"}).json().at("script") == fish);
}

TEST_CASE("the progress line fits 80 columns and says when the list is done", "[emulator]") {
  const TemporaryFolder folder;
  const std::string shapes = folder.file("shapes.json");
  write_file(shapes,
             R"(["forward bf16 b1 hq1 sq16 d64", "forward bf16 b1 hq1 sq24 d64", "forward bf16 b1 hq1 sq32 d64"])");
  const CommandResult result =
      run_attune(words("tune --device emulator --target a100 --max-candidates 2 --progress line --shapes " + shapes +
                       " --database " + (folder.file("tuning.db"))),
                 kNoGpu);
  INFO(result.err);
  REQUIRE(result.status == 0);
  int lines = 0, with_list = 0;
  const std::string start = "\r\x1b[K";
  for (std::size_t at = result.err.find(start); at != std::string::npos;) {
    at += start.size();
    const std::size_t next = result.err.find(start, at);
    const std::string line = result.err.substr(at, std::min(next, result.err.find('\n', at)) - at);
    CHECK(line.size() < 80);
    with_list += line.find(", list ") != std::string::npos;
    ++lines;
    at = next;
  }
  CHECK(lines >= 6);
  CHECK(with_list >= 1);
}
