// A list's names of problems: in the results of `tune`, in its progress, in its table and on the page of `report`.
#include <map>
#include <string>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

TEST_CASE("tune of a list: problems keep the names that it gives them", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string shapes = folder.file("shapes.csv");
  write_file(shapes, "# of one model\nname,heads,seq,head-dim\n\"prefill, short\",2,48,64\n,2,33,32\n");
  const std::string tune = "tune --max-candidates 1" + kEmulator + " --shapes " + shapes;
  const CommandResult json = run_attune(words(tune + " --json --progress json"), environment);
  INFO(json.err);
  REQUIRE(json.status == 0);
  const nlohmann::json results = json.json().at("results");
  CHECK(results.at(0).at("name") == "prefill, short");
  CHECK_FALSE(results.at(1).contains("name"));
  CHECK(nlohmann::json::parse(json.err.substr(0, json.err.find('\n'))).at("name") == "prefill, short");

  const CommandResult text = run_attune(words(tune + " --progress plain"), environment);
  CHECK_THAT(text.out, ContainsSubstring("name           prefill, short\nproblem        forward bf16 b1 hq2 sq48 d64"));
  CHECK_THAT(text.err, ContainsSubstring("[1/2] prefill, short: forward bf16 b1 hq2 sq48 d64"));
  const CommandResult csv = run_attune(words(tune + " --format csv --progress none"), environment);
  CHECK(csv.out.substr(0, csv.out.find('\n')) ==
        "name,problem,status,config,median_us,wide_median_us,tflops,speed_over_default,rigor,ended_by,message");
  CHECK_THAT(csv.out, ContainsSubstring("\n\"prefill, short\",forward bf16 b1 hq2 sq48 d64,ok,") &&
                          ContainsSubstring("\n,forward bf16 b1 hq2 sq33 d32,ok,"));
  CHECK_THAT(run_attune(words(tune + " --format csv --compile-only"), environment).err,
             ContainsSubstring("--compile-only makes no table"));

  // The report calls them so, too.
  const std::string page = folder.file("report.html");
  const CommandResult report = run_attune(words("report --output " + page + " --shapes " + shapes), environment);
  INFO(report.err);
  CHECK(report.status == 0);
  CHECK_THAT(read_file(page), ContainsSubstring("\"name\":\"prefill, short: forward bf16 B1 H2 S48 D64 full\"") &&
                                  ContainsSubstring("\"name\":\"forward bf16 B1 H2 S33 D32 full\""));
  write_file(shapes, "name,seq,head-dim\nunknown,999,64\n");
  CHECK_THAT(run_attune(words("report --output " + page + " --shapes " + shapes), environment).out,
             ContainsSubstring("1 of the problems that --shapes names have no results"));
  CHECK(run_attune(words("report --output " + shapes + " --shapes " + shapes), environment).status == 2);
}
