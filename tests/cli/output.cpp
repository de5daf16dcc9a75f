// Where verbs write: to standard output, over what they made before.
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

TEST_CASE("- is standard output, which then holds the file alone", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string input = "input --seq 16 --head-dim 8 --output ";
  REQUIRE(run_attune(words(input + (folder.file("qkv")))).status == 0);
  for (const std::string place : {"-", "/dev/stdout"}) {
    const CommandResult result = run_attune(words(input + place));
    CHECK(result.status == 0);
    CHECK(result.out == read_file(folder.file("qkv")));
    CHECK_THAT(result.err, ContainsSubstring("random normal"));
  }
  CHECK_FALSE(std::filesystem::exists("-"));

  const std::string database = folder.file("tuning.db");
  write_file(folder.file("export.json"), R"({"format": "attune measurements", "version": 1, "measurements": []})");
  REQUIRE(run_attune({"db", "import", folder.file("export.json"), "--database", database}).status == 0);
  const CommandResult plain = run_attune({"db", "export", "--database", database});
  CHECK(run_attune({"db", "export", "--database", database, "--output", "-"}).out == plain.out);
  REQUIRE(run_attune({"db", "ship", "--output", folder.file("system.db")}).status == 0);
  const CommandResult shipped = run_attune({"db", "ship", "--output", "-"});
  CHECK(shipped.status == 0);
  CHECK(shipped.out == read_file(folder.file("system.db")));
}

TEST_CASE("what is written to a full device names the reason", "[nogpu]") {
  const CommandResult result = run_attune_to("/dev/full", words("input --seq 16 --head-dim 8 --output -"));
  CHECK(result.status == 2);
  CHECK_THAT(result.err, ContainsSubstring("standard output cannot be written: No space left on device"));
}

TEST_CASE("ship replaces what ship made, and no other database", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string system = folder.file("system.db"), own = folder.file("tuning.db");
  write_file(folder.file("export.json"), R"({"format": "attune measurements", "version": 1, "measurements": []})");
  for (int i = 0; i < 2; ++i)
    CHECK(run_attune({"db", "ship", folder.file("export.json"), "--output", system}).status == 0);
  REQUIRE(run_attune({"db", "import", folder.file("export.json"), "--database", own}).status == 0);
  const std::string before = read_file(own);
  const CommandResult refused = run_attune({"db", "ship", folder.file("export.json"), "--output", own});
  CHECK(refused.status == 2);
  CHECK_THAT(refused.err, ContainsSubstring(own + " is not written") && ContainsSubstring("name another file"));
  CHECK(read_file(own) == before);
}
