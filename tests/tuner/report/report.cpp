// The page of a tuning database: its data, other libraries' times, and what may not be in it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/report/embedded_page.h"
#include "tuner/report/report_data.h"
#include "tuner/report/report_page.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

namespace report_test {
namespace {

const char* const kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";
const char* const kHostile =
    "o: 1 < 2 && 3 > 2 \"quoted\" </script><script>alert(1)</script><!-- \xE2\x80\xA8 \xFF end";

Measurement failed(const std::string& config, MeasurementStatus status, const std::string& reason) {
  Measurement row = example_measurement(kProblem, config);
  row.status = status;
  row.reason = reason;
  row.samples_us.clear();
  row.clocks_mhz.clear();
  row.summarize();
  return row;
}

Measurement raced(Measurement row, int place) {
  row.race = "2025-02-01T00:00:00.000000Z";
  row.place = place;
  row.created_at = "2025-02-01T00:00:0" + std::to_string(place) + ".000000Z";
  return row;
}

ReportRequest everything(const TuningDatabase& database) {
  ReportRequest request;
  request.entries = database.list();
  request.selected = most_rows(request.entries, std::nullopt).value();
  return request;
}

/// A row of the document by the names of its columns, its config as it stands in the list.
Json named(const Json& document, const Json& values) {
  REQUIRE(values.size() == document.at("columns").size());
  Json row;
  for (std::size_t i = 0; i < values.size(); ++i) row[document["columns"][i].get<std::string>()] = values[i];
  const Json& config = document.at("configs").at(row.at("config").get<std::size_t>());
  row["config"] = config.at("text");
  row["fields"] = config.at("fields");
  return row;
}

/// What stands in the page's element of data.
Json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const char* const kPeers = R"({
 "format": "attune comparison", "version": 1, "protocol": "in turns",
 "machine": {"gpu": "NVIDIA H200", "sm_count": 132, "torch": "2.11", "cudnn": 91900},
 "rows": [
  {"problem": "forward bf16 b2 hq8 sq1024 d64 causal bhsd", "config": "sm80 q128 kv64 w4 st2",
   "contenders": {
    "attune": {"median_us": 100, "p20_us": 99, "p80_us": 102, "samples": 50, "within": true},
    "fa2": {"median_us": 125, "p20_us": 124, "p80_us": 126, "samples": 50, "within": true},
    "cudnn": {"error": "No available kernel"}}},
  {"problem": "forward bf16 b1 hq1 sq8 d8", "contenders": {"other": {"median_us": 1, "p20_us": 1, "p80_us": 1, "samples": 3}}}
 ]})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("report: the document holds what the database holds", "[nogpu]") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "tuning.db";
  const KernelConfig standard = default_config(parse_problem(kProblem), find_device("h200"));
  {
    TuningDatabase database(file);
    database.append(example_measurement(kProblem, canonical_text(standard), 110));
    database.append(example_measurement(kProblem, "sm80 q128 kv64 w4 st2 order=tile-major-reversed", 100));
    for (int status = static_cast<int>(MeasurementStatus::infeasible);
         status <= static_cast<int>(MeasurementStatus::out_of_memory); ++status) {
      database.append(failed("sm80 q64 kv" + std::to_string(16 * status) + " w4 st2",
                             static_cast<MeasurementStatus>(status), kHostile));
    }
    database.append(raced(example_measurement(kProblem, "sm80 q128 kv64 w4 st2 order=tile-major-reversed", 101), 1));
    database.append(raced(example_measurement(kProblem, canonical_text(standard), 109), 2));
    // Probed once more after the race: its newest row, and not the one that the best can be compared with.
    Measurement later = example_measurement(kProblem, canonical_text(standard), 115);
    later.created_at = "2025-03-01T00:00:00.000000Z";
    database.append(later);
    Measurement broken = failed("sm80 q32 kv16 w2 st2", MeasurementStatus::wrong_result, "o holds NaN");
    broken.error_o = std::nan("");
    database.append(broken);
    Measurement estimate = example_measurement("forward fp16 b1 hq2 hkv1 sq100 skv50 d16", "sm80 q64 kv64 w4 st2", 0);
    estimate.rigor = Rigor::estimate;
    estimate.samples_us.clear();
    estimate.clocks_mhz.clear();
    estimate.summarize();
    estimate.predicted_us = 7;
    database.append(estimate);
    Measurement elsewhere = example_measurement(kProblem, "sm80 q128 kv64 w4 st2", 300);
    elsewhere.device = "NVIDIA Nonesuch";
    elsewhere.sm_count = 77;
    database.append(elsewhere);
    Measurement newer = example_measurement(kProblem, "sm80 q16 kv16 w1 st1", 90);
    database.append(newer);
  }
  test::run_sql(file, "UPDATE measurement SET config = 'sm999 warp-drive' WHERE config = 'sm80 q16 kv16 w1 st1'");

  TuningDatabase database(file);
  const Json document = report_data(database, everything(database));
  CHECK(document.at("database") == "tuning.db");
  REQUIRE(document.at("problems").size() == 3);
  REQUIRE(document.at("devices").size() == 2);
  const Json& selected = document.at("problems").at(document.at("selected").get<std::size_t>());
  CHECK(selected.at("problem") == kProblem);
  CHECK(selected.at("name") == "forward bf16 B2 H8 S1024 D64 causal");
  CHECK(document.at("devices").at(selected.at("device").get<std::size_t>()).at("name") == "NVIDIA H200");
  CHECK(selected.at("rows") == 17);
  CHECK(selected.at("unreadable") == 1);
  CHECK(selected.at("flops").get<double>() == count_flops(parse_problem(kProblem)));
  CHECK(selected.at("statuses").at("ok") == 5);
  CHECK(selected.at("statuses").size() == 11);

  const std::vector<Measurement> rows = database.find_all(parse_problem(kProblem), "NVIDIA H200", 132);
  REQUIRE(selected.at("trials").size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json row = named(document, selected["trials"][i]);
    CHECK(row.at("config") == canonical_text(rows[i].config));
    CHECK(row.at("fields").size() == document.at("fields").size());
    CHECK(row.at("fields").at(1) == rows[i].config.block_q);
    CHECK(row.at("status") == to_string(rows[i].status));
    CHECK(row.at("reason") == rows[i].reason);
    CHECK(row.at("rigor") == to_string(rows[i].rigor));
    CHECK(row.at("race") == rows[i].race);
    CHECK(row.at("place") == rows[i].place);
    CHECK(row.at("median_us") == rows[i].median_us);
    CHECK(row.at("p20_us") == rows[i].p20_us);
    CHECK(row.at("p80_us") == rows[i].p80_us);
    CHECK(row.at("samples") == rows[i].samples_us.size());
    CHECK(row.at("wide_median_us") == rows[i].wide_median_us);
    CHECK(row.at("predicted_us") == rows[i].predicted_us);
    CHECK(row.at("sm_clock_mhz") == rows[i].sm_clock_mhz);
    CHECK(row.at("clock_low") == (rows[i].clocks_mhz.empty() ? 0 : 1605));
    CHECK(row.at("clock_high") == (rows[i].clocks_mhz.empty() ? 0 : 1635));
    CHECK(row.at("registers") == rows[i].registers);
    CHECK(row.at("spill_bytes") == rows[i].spill_bytes);
    CHECK(row.at("shared_bytes") == rows[i].shared_bytes);
    CHECK(row.at("created_at") == rows[i].created_at);
    CHECK(document.at("provenance").at(row.at("provenance").get<std::size_t>()).at("protocol") == rows[i].protocol);
  }
  const auto nan = std::count_if(selected["trials"].begin(), selected["trials"].end(),
                                 [&](const Json& row) { return named(document, row).at("error_o") == "nan"; });
  CHECK(nan == 1);

  // The best is the race's winner, not the fastest probe; the default stands beside it by its row of that race.
  CHECK(named(document, selected.at("best")).at("median_us") == 101);
  CHECK(named(document, selected.at("best")).at("place") == 1);
  CHECK(named(document, selected.at("default")).at("median_us") == 109);
  CHECK(selected.at("default_config") == canonical_text(standard));
  CHECK(selected.at("model").at("compared") == 2);
  // 132 SMs at 1980 MHz, 4096 FLOP per clock by wgmma, two thirds of them by mma.sync.
  const double wgmma_us = count_flops(parse_problem(kProblem)) / (4096.0 * 132 * 1980);
  CHECK(selected.at("ceilings").at("matrix_us").at("wgmma").get<double>() == Approx(wgmma_us));
  CHECK(selected.at("ceilings").at("matrix_us").at("mma.sync").get<double>() == Approx(wgmma_us * 1.5));
  CHECK(selected.at("flops_per_pair") == 4 * 64);

  for (const Json& problem : document["problems"]) {
    const Json& device = document["devices"][problem.at("device").get<std::size_t>()];
    if (device.at("name") == "NVIDIA Nonesuch") {
      CHECK(device.at("known") == false);
      CHECK(problem.at("ceilings").is_null());
      CHECK(problem.at("default").is_null());
      CHECK(named(document, problem.at("best")).at("median_us") == 300);
    } else if (problem.at("problem") != kProblem) {
      CHECK(problem.at("name") == "forward fp16 B1 H2/1 S100/50 D16 full");
      CHECK(problem.at("model").is_null());
      CHECK(problem.at("rigors") == Json({{"estimate", 1}}));
      CHECK(named(document, problem.at("best")).at("predicted_us") == 7);
    }
  }

  SECTION("rows of further problems are left out whole when they are too many, those of the selected one never") {
    ReportRequest request = everything(database);
    request.max_rows = 1;
    const Json small = report_data(database, request);
    int left_out = 0;
    for (const Json& problem : small.at("problems")) {
      const bool is_selected = problem.at("rows") == 17;
      CHECK((!is_selected || !problem.at("trials").is_null()));
      left_out += problem.at("trials").is_null() ? 1 : 0;
      CHECK_FALSE(problem.at("best").is_null());
    }
    CHECK(left_out == 2);
  }
  SECTION("the page: the data come back as they were, and nothing in them is markup") {
    const std::string page = report_page(document);
    CHECK(data_of(page) == Json::parse(document.dump(-1, ' ', false, Json::error_handler_t::replace)));
    CHECK_THAT(data_of(page).dump(), ContainsSubstring("alert(1)"));
    CHECK(count(page, "<script>alert(1)") == 0);
    CHECK(count(page, "<script") == 3);
    CHECK(count(page, "</script>") == 3);
    CHECK(count(page, "<!--") == 0);
  }
}

TEST_CASE("report: the page loads nothing and keeps the library's licence", "[nogpu]") {
  const std::string page = report_page(Json::object());
  // What makes a browser load something; namespaces of XML and addresses in a licence do not.
  for (const char* loads :
       {R"((src|href|action|poster|data)\s*=\s*["']?\s*(https?:)?//)", R"(url\(\s*["']?\s*(https?:)?//)", R"(@import)",
        R"(<(link|iframe|object|embed|base)\s(?!rel="icon" href="data:,"))"}) {
    INFO(loads);
    // std::regex recurses by the letter: line by line, and the library's one long line by what stands around an
    // address.
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      for (std::size_t at = 0; at < line.size(); at += 1000)
        CHECK_FALSE(std::regex_search(line.substr(at, 1100), std::regex(loads, std::regex::icase)));
    }
  }
  CHECK_THAT(page, ContainsSubstring("Content-Security-Policy\" content=\"default-src 'none'"));
  // Nor is there a call that would fetch something, of the page's own scripts or of the library's.
  for (const char* fetches : {"fetch(", "XMLHttpRequest", "sendBeacon", "WebSocket", "EventSource", "importScripts",
                              "import(", "sourceMappingURL"}) {
    INFO(fetches);
    CHECK(count(page, fetches) == 0);
  }
  CHECK_THAT(page, ContainsSubstring("Chart.js Contributors") && ContainsSubstring("License: Expat") &&
                       ContainsSubstring("THE SOFTWARE IS PROVIDED \"AS IS\""));
  CHECK_THAT(page, ContainsSubstring("Chart.js v3.9"));
  CHECK(count(page, "<!--${") == 0);
  CHECK(count(page, "<noscript>") == 1);
}

TEST_CASE("report: times of other libraries", "[nogpu]") {
  const PeerFile peers = parse_peers(kPeers, "peers.json");
  CHECK(peers.gpu == "NVIDIA H200");
  CHECK(peers.sm_count == 132);
  CHECK(peers.versions == std::vector<std::pair<std::string, std::string>>{{"torch", "2.11"}, {"cudnn", "91900"}});
  REQUIRE(peers.rows.size() == 2);
  CHECK(peers.rows[0].attune_us == 100);
  REQUIRE(peers.rows[0].peers.size() == 2);
  CHECK(peers.rows[0].peers[0].median_us == 125);
  CHECK(peers.rows[0].peers[1].error == "No available kernel");
  for (const char* data : {"sink:12", "normal:1"}) {
    const std::string text = replaced(kPeers, "{\"problem\": \"forward bf16 b2",
                                      "{\"data\": \"" + std::string(data) + "\", \"problem\": \"forward bf16 b2");
    CHECK(parse_peers(text, "peers.json").rows.size() == (std::string(data) == "sink:12" ? 1 : 2));
  }
  CHECK(peer_title("fa2") == "FlashAttention-2");
  CHECK(peer_title("mine") == "mine");

  SECTION("beside the best of the same problem on the same device; layout and scale aside") {
    const TemporaryFolder folder;
    TuningDatabase database(folder / "tuning.db");
    database.append(example_measurement(kProblem));
    Measurement elsewhere = example_measurement(kProblem);
    elsewhere.sm_count = 66;
    database.append(elsewhere);
    ReportRequest request = everything(database);
    PeerFile later = peers;
    later.name = "later.json";
    later.rows[0].peers.resize(1);
    later.rows[0].peers[0].median_us = 130;
    request.peers = {peers, later};
    const Json document = report_data(database, request);
    CHECK(document.at("peer_files").at(0).at("rows") == 2);
    CHECK(document.at("peer_files").at(0).at("shown") == 1);
    for (const Json& problem : document.at("problems")) {
      if (document["devices"][problem.at("device").get<std::size_t>()].at("sm_count") == 66) {
        CHECK(problem.at("peers").empty());
        continue;
      }
      REQUIRE(problem.at("peers").size() == 2);
      CHECK(problem["peers"][0].at("title") == "cuDNN");
      CHECK(problem["peers"][0].at("error") == "No available kernel");
      CHECK(problem["peers"][1].at("median_us") == 130);
      CHECK(problem["peers"][1].at("attune_us") == 100);
      CHECK(problem["peers"][1].at("file") == 1);
    }
  }
  SECTION("what is wrong is named") {
    const auto complaint = [](const std::string& text) {
      try {
        parse_peers(text, "peers.json");
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::invalid_argument);
        return std::string(error.what());
      }
      return std::string();
    };
    CHECK_THAT(complaint("{"), ContainsSubstring("peers.json is not JSON"));
    CHECK_THAT(complaint("[]"), ContainsSubstring("compare_with_torch.py --json"));
    CHECK_THAT(complaint(R"({"rows": []})"), ContainsSubstring("compare_with_torch.py --json"));
    CHECK_THAT(complaint(replaced(kPeers, "\"version\": 1", "\"version\": 2")), ContainsSubstring("version 2"));
    CHECK_THAT(complaint(replaced(kPeers, "\"gpu\"", "\"gnu\"")),
               ContainsSubstring("machine") && ContainsSubstring("\"gpu\""));
    CHECK_THAT(complaint(replaced(kPeers, "sq1024", "vax")), ContainsSubstring("row 1") && ContainsSubstring("vax"));
    CHECK_THAT(complaint(replaced(kPeers, "d8\"", "d9\"")),
               ContainsSubstring("row 2") && ContainsSubstring("head dim 9"));
    CHECK_THAT(complaint(replaced(kPeers, "\"median_us\": 125", "\"median_us\": -1")),
               ContainsSubstring("row 1, fa2") && ContainsSubstring("median_us"));
    CHECK_THAT(complaint(replaced(kPeers, "\"samples\": 3", "\"samples\": \"3\"")),
               ContainsSubstring("row 2, other") && ContainsSubstring("samples"));
    CHECK_THAT(complaint(replaced(kPeers, "\"contenders\": {\"other\"", "\"contended\": {\"other\"")),
               ContainsSubstring("contenders"));
  }
}

TEST_CASE("report: text of a database never becomes markup of the page", "[nogpu]") {
  const std::string_view script = embedded_page().script;
  CHECK(script.size() > 10000);
  for (const char* markup : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                             "createContextualFragment", "DOMParser", "setHTML", "eval(", "Function("}) {
    INFO(markup);
    CHECK(script.find(markup) == std::string_view::npos);
  }
  // Nor would any of the page's own parts end the element that it stands in.
  for (const std::string_view part : {script, embedded_page().library, embedded_page().style}) {
    CHECK(part.find("</script") == std::string_view::npos);
    CHECK(part.find("</style") == std::string_view::npos);
    CHECK(part.find("<!--") == std::string_view::npos);
  }
}

TEST_CASE("report: which problem opens the page", "[nogpu]") {
  std::vector<TuningDatabase::Entry> entries(3);
  entries[0] = {parse_problem(kProblem), "a", 1, 5, 5};
  entries[1] = {parse_problem("forward fp16 b1 hq1 sq8 d8"), "a", 1, 9, 9};
  entries[2] = {parse_problem(kProblem), "b", 1, 7, 0};
  CHECK(most_rows(entries, std::nullopt) == 1U);
  CHECK(most_rows(entries, parse_problem(kProblem)) == 2U);
  CHECK(most_rows(entries, parse_problem(std::string(kProblem) + " scale0.5 bhsd")) == 2U);
  CHECK_FALSE(most_rows(entries, parse_problem("forward fp16 b1 hq1 sq9 d8")).has_value());
  CHECK_FALSE(most_rows({}, std::nullopt).has_value());

  // One that is measured opens it, whatever others have; of those the one with most rows.
  const auto has_ok = [](const TuningDatabase::Entry& entry) { return entry.ok > 0; };
  CHECK(most_rows(entries, parse_problem(kProblem), has_ok) == 0U);
  entries[1].ok = 0;
  CHECK(most_rows(entries, std::nullopt, has_ok) == 0U);
  entries[0].ok = 0;
  CHECK(most_rows(entries, std::nullopt, has_ok) == 1U);
}

}  // namespace report_test
