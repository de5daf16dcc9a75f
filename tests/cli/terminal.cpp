// What comes from outside is shown and not obeyed: device names, reasons and compilers of a foreign database, paths.
#include <algorithm>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/tuner/database/kernel_packs.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::TuningDatabase;

namespace {

// A title that a terminal would set, a cleared screen, CSI as one C1 control, an override of the writing direction, a
// byte that is no UTF-8, a line of its own.
const std::string kHostile =
    "\x1b]0;owned\x07\x1b[2J\xc2\x9b"
    "31m\xe2\x80\xaeko\xff\r\nforged line";

bool is_quiet(const std::string& text) {
  const auto obeyed = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
  };
  return std::none_of(text.begin(), text.end(), obeyed) && text.find("\xc2\x9b") == std::string::npos &&
         text.find("\xe2\x80\xae") == std::string::npos && text.find('\xff') == std::string::npos;
}

// What is one line of a report begins no other.
bool is_unforged(const std::string& text) { return ("\n" + text).find("\nforged") == std::string::npos; }

}  // namespace

TEST_CASE("no verb sends a foreign database's control characters to the terminal", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const std::string problem = "forward bf16 b2 hq8 sq1024 d64 causal", config = "sm80 q128 kv64 w4 st2";
  {
    TuningDatabase database(path);
    Measurement row = attune::test::example_measurement(problem, config);
    row.device = "NVIDIA" + kHostile;
    row.compiler = row.driver = row.protocol = row.source_hash = kHostile;
    database.append(row);
    row.config.block_q = 64;
    row.driver += "2";
    database.append(row);
    row.status = attune::MeasurementStatus::crashed;
    row.reason = kHostile;
    row.config.block_kv = 32;
    database.append(row);
  }
  const std::string other = "sm80 q64 kv64 w4 st2";
  const std::vector<std::vector<std::string>> verbs = {{"db", "list"},
                                                       {"db", "best"},
                                                       {"db", "info"},
                                                       {"db", "doctor"},
                                                       {"db", "export"},
                                                       {"explain", "--problem", problem, "--target", "h200"},
                                                       {"compare", config, other},
                                                       {"db", "prune", "--keep-latest", "1", "--dry-run"}};
  for (std::vector<std::string> verb : verbs) {
    for (const bool json : {false, true}) {
      std::vector<std::string> arguments = verb;
      arguments.insert(arguments.end(), {"--database", path});
      if (json) arguments.push_back("--json");
      const CommandResult result = run_attune(arguments, kNoGpu);
      INFO(verb[0] << " " << verb[1] << (json ? " --json" : "") << "\n" << result.out << result.err);
      CHECK(result.status <= 1);
      CHECK(is_quiet(result.out));
      CHECK(is_quiet(result.err));
      CHECK(is_unforged(result.out));
      CHECK(is_unforged(result.err));
      if (json) CHECK(result.json().is_object());
    }
  }
  const CommandResult list = run_attune({"db", "list", "--database", path}, kNoGpu);
  CHECK_THAT(list.out, ContainsSubstring("NVIDIA\\x1b]0;owned\\x07"));
  const CommandResult named = run_attune({"compare", config, "no" + kHostile + ".db", "--database", path}, kNoGpu);
  CHECK(named.status == 2);
  CHECK(is_quiet(named.err));
}

TEST_CASE("what a foreign pack says of itself forges no line of what is shown of it", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "model.attune").string();
  attune::PackContents contents =
      attune::test::example_pack({{"forward bf16 b1 hq2 sq1000 d64", "sm80 q64 kv64 w4 st2"}});
  for (std::string* text : {&contents.manifest.attune_version, &contents.manifest.templates_hash,
                            &contents.manifest.target, &contents.manifest.device, &contents.manifest.arch,
                            &contents.manifest.compiler, &contents.picks[0].origin, &contents.picks[0].detail,
                            &contents.picks[0].source_hash, &contents.kernels[0].entry, &contents.kernels[0].log})
    *text += kHostile;
  attune::write_kernel_pack(path, contents);
  for (const bool json : {false, true}) {
    std::vector<std::string> arguments = {"pack", "--show", path};
    if (json) arguments.push_back("--json");
    const CommandResult shown = run_attune(arguments, kNoGpu);
    INFO(shown.out << shown.err);
    CHECK(shown.status == 1);  // of another version
    CHECK(is_quiet(shown.out));
    CHECK(is_unforged(shown.out));
    CHECK(is_unforged(shown.err));
  }
}
