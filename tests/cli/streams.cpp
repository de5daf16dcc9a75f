// Standard output and standard error that are closed, full, or pipes without a reader: nothing that is said ends what
// is done, and results that were lost are no success.
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::TuningDatabase;

namespace {

/// A pipe that nobody reads, as a descriptor that redirections of a shell can name.
class PipeWithoutReader {
 public:
  PipeWithoutReader() {
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0 || ::dup2(ends[1], kDescriptor) < 0) throw std::runtime_error("no pipe");
    for (const int end : ends) ::close(end);
  }
  ~PipeWithoutReader() { ::close(kDescriptor); }
  PipeWithoutReader(const PipeWithoutReader&) = delete;
  PipeWithoutReader& operator=(const PipeWithoutReader&) = delete;

 private:
  static constexpr int kDescriptor = 9;
};

const std::vector<std::string> kLostErrors = {"2>/dev/full", "2>&-", "2>&9"};
const std::vector<std::string> kLostResults = {">/dev/full", ">&-", ">&9"};

// What a command says of its database is the same each time.
const std::map<std::string, std::string> kSameEachTime = {{"CUDA_VISIBLE_DEVICES", "-1"},
                                                          {"ATTUNE_DATABASE", "/nowhere/tuning.db"}};

CommandResult redirected(const std::string& redirection, const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment = kSameEachTime) {
  return run_attune_by_shell("exec \"$@\" " + redirection, arguments, environment);
}

// Each says something on both streams.
std::vector<std::vector<std::string>> quick_verbs(const TemporaryFolder& folder) {
  const std::string database = folder.file("tuning.db"), problem = "forward bf16 b2 hq8 sq1024 d64 causal";
  {
    TuningDatabase rows(database);
    Measurement row = attune::test::example_measurement(problem, "sm80 q128 kv64 w4 st2");
    rows.append(row);
    row.config.block_q = 64;
    rows.append(row);
  }
  std::vector<std::vector<std::string>> verbs = {{"show", "source", "--problem", problem, "--target", "a100"},
                                                 {"show", "plan", "--problem", problem, "--target", "h200"},
                                                 {"explain", "--problem", problem, "--target", "h200"},
                                                 {"compare", "sm80 q128 kv64 w4 st2", "sm80 q64 kv64 w4 st2"},
                                                 {"db", "list"},
                                                 {"db", "export"},
                                                 {"db", "doctor"},
                                                 {"devices"}};
  for (std::vector<std::string>& verb : verbs) {
    if (verb[0] != "devices") verb.insert(verb.end(), {"--database", database});
    if (verb != verbs.back() && verb[1] != "export") verb.emplace_back("--json");
    verb.emplace_back("--verbose");
  }
  verbs.push_back(words("input --seq 16 --head-dim 8 --verbose --output " + folder.file("qkv")));
  verbs.push_back(words("show plan --seq 16 --head-dim 9"));  // an error
  verbs.push_back(words("help tune"));
  return verbs;
}

}  // namespace

TEST_CASE("what cannot be said on stderr changes neither results nor status", "[nogpu]") {
  const TemporaryFolder folder;
  const PipeWithoutReader pipe;
  for (const std::vector<std::string>& verb : quick_verbs(folder)) {
    const CommandResult whole = redirected("", verb);
    CHECK(whole.status <= 2);
    for (const std::string& redirection : kLostErrors) {
      const CommandResult result = redirected(redirection, verb);
      INFO(verb[0] << " " << verb[1] << " " << redirection);
      CHECK(result.status == whole.status);
      CHECK(result.out == whole.out);
    }
  }
}

TEST_CASE("results that cannot be written end in a message and a status that says so", "[nogpu]") {
  const TemporaryFolder folder;
  const PipeWithoutReader pipe;
  for (const std::vector<std::string>& verb : quick_verbs(folder)) {
    if (redirected("", verb).out.empty()) continue;  // the error
    for (const std::string& redirection : kLostResults) {
      const CommandResult result = redirected(redirection, verb);
      INFO(verb[0] << " " << verb[1] << " " << redirection << "\n" << result.err);
      CHECK(result.status == 2);
      CHECK_THAT(result.err, ContainsSubstring("attune: standard output cannot be written: "));
    }
  }
  CHECK(redirected(">&9 2>&9", {"devices"}).status == 2);
  CHECK(redirected(">&- 2>&-", {"devices"}).status == 2);
  CHECK(std::filesystem::exists(folder.file("qkv")));
}

TEST_CASE("a limit of the file size ends neither message nor work with a signal", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string err = folder.file("log");
  CHECK(run_attune_by_shell("ulimit -f 0; exec \"$@\" >/dev/null 2>" + err, {"devices", "--verbose"}, kNoGpu).status ==
        0);
  const CommandResult results = run_attune_by_shell("ulimit -f 0; exec \"$@\" 2>/dev/null", {"devices"}, kNoGpu);
  CHECK(results.status == 2);
  CHECK(results.out.empty());
}

TEST_CASE("tune stores its rows whatever becomes of what it says", "[emulator]") {
  const TemporaryFolder folder;
  const PipeWithoutReader pipe;
  int number = 0;
  const auto check = [&](const std::string& redirection, const std::string& progress, int status) {
    const std::string database = folder.file("tuning" + std::to_string(++number) + ".db");
    const CommandResult result =
        redirected(redirection, words("tune --heads 1 --seq 32 --head-dim 16 --max-candidates 1 --device emulator "
                                      "--target a100 --verbose --database " +
                                      database + " --progress " + progress));
    INFO(redirection << "\n" << result.err);
    CHECK(result.status == status);
    CHECK(TuningDatabase::open_for_reading(database)->list().size() == 1);
  };
  check("2>/dev/full", "plain", 0);
  check("2>&-", "json", 0);
  check("2>&9", "line", 0);
  check("<&- >&- 2>&-", "plain", 2);
  check(">/dev/full", "plain", 2);
  check(">&9 2>&9", "plain", 2);
}

TEST_CASE("compile goes on whatever becomes of what it says", "[nvrtc]") {
  const TemporaryFolder folder;
  const PipeWithoutReader pipe;
  for (const std::string redirection : {"2>/dev/full", "2>&-", "2>&9"}) {
    const CommandResult result =
        redirected(redirection, words("compile --target a100 --heads 1 --seq 32 --head-dim 16 --max-candidates 1"),
                   {{"ATTUNE_CACHE_DIR", folder.file(redirection.substr(redirection.size() - 1))}});
    INFO(redirection);
    CHECK(result.status == 0);
    CHECK_THAT(result.out, ContainsSubstring("compiled"));
  }
}
