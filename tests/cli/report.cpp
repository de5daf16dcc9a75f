// `report` on databases of rows with known answers; its page as a browser without a network would see it.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <regex>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::MeasurementStatus;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;

namespace report_test {
namespace {

const std::string kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";
const std::string kOther = "forward fp16 b1 hq2 sq512 d128";

void fill(const std::string& path) {
  attune::TuningDatabase database(path);
  for (int i = 1; i <= 6; ++i) {
    Measurement row =
        example_measurement(kProblem, "sm80 q64 kv" + std::to_string(16 * i) + " w4 st2", 100 + 7 * i % 5);
    row.predicted_us = 90 + i;
    if (i == 4) {
      row.status = MeasurementStatus::crashed;
      row.reason = "signal 11 </script> <b>";
      row.samples_us.clear();
      row.summarize();
    }
    database.append(row);
  }
  database.append(example_measurement(kOther, "sm80 q128 kv64 w4 st2", 50));
  Measurement elsewhere = example_measurement(kOther, "sm80 q128 kv64 w4 st2", 70);
  elsewhere.device = "NVIDIA A100-SXM4-80GB";
  elsewhere.sm_count = 108;
  database.append(elsewhere);
}

nlohmann::json data_of(const std::string& page) {
  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

/// The document as the browser leaves it when the page's script has run; empty without such a browser. What it logs
/// goes to `log`.
std::string seen_by_browser(const std::string& page, const std::string& profile, const std::string& log) {
  const std::string command =
      "timeout 60 chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 --enable-logging=stderr "
      "--window-size=1280,2000 --user-data-dir='" +
      profile + "' --dump-dom 'file://" + page + "' 2>'" + log + "'";
  std::string seen;
  if (std::FILE* pipe = ::popen(command.c_str(), "r")) {
    char buffer[4096];
    while (const std::size_t bytes = std::fread(buffer, 1, sizeof(buffer), pipe)) seen.append(buffer, bytes);
    if (::pclose(pipe) != 0) seen.clear();
  }
  return seen;
}

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const std::size_t begin = text.find(open);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find(close, begin) - begin);
}

}  // namespace

TEST_CASE("report of a device that names no possible number of SMs", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string database = (folder / "tuning.db").string(), page = (folder / "report.html").string();
  const int sms = GENERATE(-1, 0, 10'001, 2147483647);
  fill(database);
  Measurement row = example_measurement(kProblem, "sm80 q64 kv64 w4 st2");
  row.sm_count = sms;
  attune::TuningDatabase(database).append(row);
  const CommandResult made = run_attune({"report", "--database", database, "--output", page}, kNoGpu);
  INFO(sms << ": " << made.err);
  CHECK(made.status == 0);
  CHECK_THAT(made.err, !ContainsSubstring("vector"));
  const nlohmann::json devices = data_of(read_file(page)).at("devices");
  CHECK(devices.size() == 3);
  for (const nlohmann::json& device : devices) CHECK(device.at("known") == (device.at("sm_count") != sms));
}

TEST_CASE("report: one page of a database", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string database = (folder / "tuning.db").string(), page = (folder / "report.html").string();
  fill(database);
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", database}};

  SECTION("everything; opens at the problem with most rows") {
    const CommandResult made = run_attune({"report", "--output", page, "--json"}, environment);
    INFO(made.err);
    REQUIRE(made.status == 0);
    CHECK(made.json().at("problems") == 3);
    CHECK(made.json().at("rows") == 8);
    CHECK(made.json().at("opened_at") == kProblem);
    CHECK(made.json().at("remarks").empty());
    CHECK(made.json().at("bytes") == read_file(page).size());
    const nlohmann::json data = data_of(read_file(page));
    CHECK(data.at("problems").size() == 3);
    CHECK(data.at("problems").at(data.at("selected").get<std::size_t>()).at("problem") == kProblem);
    CHECK(data.at("database") == "tuning.db");
    CHECK(read_file(page).find(folder.path().string()) == std::string::npos);
    CHECK_THAT(run_attune({"report", "--output", page}, environment).out,
               ContainsSubstring(page) && ContainsSubstring("3 problems, 8 rows"));
  }
  SECTION("one device, one problem") {
    for (const std::string target : {"h200", "NVIDIA H200"}) {
      const CommandResult made =
          run_attune({"report", "--output", page, "--target", target, "--problem", kOther, "--json"}, environment);
      REQUIRE(made.status == 0);
      CHECK(made.json().at("problems") == 2);
      CHECK(made.json().at("opened_at") == kOther);
    }
    CHECK(run_attune(words("report --dtype fp16 --heads 2 --seq 512 --head-dim 128 --output " + page), environment)
              .status == 0);
    CHECK(run_attune({"report", "--output", page, "--target", "vax"}, environment).status == 2);
  }
  SECTION("nothing to show: status 1, a reason, and the page stays what it was") {
    write_file(page, "before");
    const CommandResult other =
        run_attune({"report", "--output", page, "--problem", "forward bf16 b1 hq1 sq8 d8", "--json"}, environment);
    CHECK(other.status == 1);
    CHECK(other.json().at("status") == "nothing_found");
    CHECK_THAT(other.json().at("message").get<std::string>(), ContainsSubstring("attune tune --problem"));
    const CommandResult device = run_attune({"report", "--output", page, "--target", "l4"}, environment);
    CHECK(device.status == 1);
    CHECK_THAT(device.out,
               ContainsSubstring("NVIDIA A100-SXM4-80GB, NVIDIA H200") && ContainsSubstring("was not written"));
    const std::string none = (folder / "none.db").string();
    const CommandResult empty = run_attune({"report", "--output", page, "--database", none});
    CHECK(empty.status == 1);
    CHECK_THAT(empty.err, ContainsSubstring("there is no such database") && ContainsSubstring("attune tune"));
    CHECK_FALSE(std::filesystem::exists(none));
    const attune::TuningDatabase made(none);
    const CommandResult begun = run_attune({"report", "--output", page, "--database", none});
    CHECK(begun.status == 1);
    CHECK_THAT(begun.out, ContainsSubstring("holds no results") && ContainsSubstring("attune tune"));
    CHECK_THAT(run_attune({"report", "--output", page, "--database", none}, {{"ATTUNE_SYSTEM_DATABASE", database}}).out,
               ContainsSubstring("--database " + database));
    CHECK(read_file(page) == "before");
  }
  SECTION("no place for the page") {
    const CommandResult absent =
        run_attune({"report", "--output", (folder / "no/such/page.html").string(), "--json"}, environment);
    CHECK(absent.status == 2);
    CHECK_THAT(absent.json().at("message").get<std::string>(), ContainsSubstring("cannot be written"));
    CHECK(run_attune({"report", "--output", folder.path().string()}, environment).status == 2);
    CHECK(run_attune({"report"}, environment).status == 2);
    CHECK(run_attune({"report", "--output", ""}, environment).status == 2);
    // A full device is no success, and leaves no part of a page behind.
    CHECK(run_attune({"report", "--output", "/dev/full"}, environment).status == 2);
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      files += entry.path().filename().string().find("partial") != std::string::npos ? 1 : 0;
    CHECK(files == 0);
  }
  SECTION("a page is replaced whole: who has the old one open keeps it") {
    write_file(page, "before");
    std::filesystem::create_hard_link(page, folder / "old.html");
    REQUIRE(run_attune({"report", "--output", page}, environment).status == 0);
    CHECK(read_file((folder / "old.html").string()) == "before");
    CHECK(read_file(page).starts_with("<!DOCTYPE html>"));
  }
  SECTION("other libraries' times") {
    const std::string peers = (folder / "peers.json").string();
    write_file(peers, R"({"format": "attune comparison", "version": 1, "machine": {"gpu": "NVIDIA H200"}, "rows": [
      {"problem": ")" + kProblem +
                          R"(", "contenders": {"fa2": {"median_us": 140, "p20_us": 139, "p80_us": 141, "samples": 9}}},
      {"problem": "forward bf16 b1 hq1 sq8 d8", "contenders": {}}]})");
    const CommandResult made = run_attune({"report", "--output", page, "--peers", peers, "--json"}, environment);
    INFO(made.err);
    REQUIRE(made.status == 0);
    REQUIRE(made.json().at("remarks").size() == 1);
    CHECK_THAT(made.json().at("remarks").at(0).get<std::string>(), ContainsSubstring("1 of 2 rows of peers.json"));
    CHECK_THAT(read_file(page), ContainsSubstring("FlashAttention-2"));
    write_file(peers, "{}");
    const CommandResult wrong = run_attune({"report", "--output", page, "--peers", peers}, environment);
    CHECK(wrong.status == 2);
    CHECK_THAT(wrong.err, ContainsSubstring(peers) && ContainsSubstring("compare_with_torch.py"));
    CHECK(run_attune({"report", "--output", page, "--peers", (folder / "none.json").string()}, environment).status ==
          2);
  }
  SECTION("in a browser: every picture is drawn, and a reason stays text") {
    REQUIRE(run_attune({"report", "--output", page}, environment).status == 0);
    const std::string log = (folder / "browser.log").string();
    const std::string seen = seen_by_browser(page, (folder / "profile").string(), log);
    if (seen.empty()) {
      WARN("not looked at in a browser: there is no `chromium` here that runs headless");
    } else {
      CHECK_THAT(seen, ContainsSubstring("data-drawn=\"yes\""));
      CHECK_THAT(read_file(log), !ContainsSubstring("CONSOLE"));  // no error, no refused load, no word
      for (const std::string plot :
           {"shapes-plot", "progress-plot", "fields-plot", "roofline-plots", "model-plot", "model-order-plot"}) {
        INFO(plot);
        CHECK(std::regex_search(between(seen, "id=\"" + plot + "\"", "<canvas"), std::regex("data-marks=\"[1-9]")));
      }
      CHECK_THAT(between(seen, "id=\"progress-plot\"", "<canvas"), ContainsSubstring("data-marks=\"6\""));
      for (const std::string table : {"shapes", "configs", "failures", "roofline", "model", "provenance", "devices"}) {
        INFO(table);
        CHECK_THAT(between(seen, "id=\"" + table + "-table\"", "</table>"), ContainsSubstring("<td"));
      }
      CHECK_THAT(between(seen, "id=\"failures-table\"", "</table>"),
                 ContainsSubstring("signal 11 &lt;/script&gt; &lt;b&gt;"));
    }
  }
}

TEST_CASE("report: opens at a measured problem, though another has more rows", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string(), page = (folder / "report.html").string();
  {
    attune::TuningDatabase database(path);
    for (int i = 1; i <= 5; ++i) {
      Measurement estimate = example_measurement(kOther, "sm80 q64 kv" + std::to_string(16 * i) + " w4 st2");
      estimate.rigor = attune::Rigor::estimate;
      estimate.samples_us.clear();
      estimate.clocks_mhz.clear();
      estimate.summarize();
      database.append(estimate);
    }
    database.append(example_measurement(kProblem, "sm80 q128 kv64 w4 st2", 100));
  }
  const CommandResult made = run_attune({"report", "--output", page, "--database", path, "--json"});
  REQUIRE(made.status == 0);
  CHECK(made.json().at("opened_at") == kProblem);
}

TEST_CASE("report: a database of estimates says so", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string database = (folder / "tuning.db").string(), page = (folder / "report.html").string();
  Measurement estimate = example_measurement(kProblem);
  estimate.rigor = attune::Rigor::estimate;
  estimate.samples_us.clear();
  estimate.clocks_mhz.clear();
  estimate.summarize();
  attune::TuningDatabase(database).append(estimate);
  const CommandResult made = run_attune({"report", "--output", page, "--database", database});
  REQUIRE(made.status == 0);
  CHECK_THAT(made.out, ContainsSubstring("nothing was measured") && ContainsSubstring("cost model"));
}

}  // namespace report_test
