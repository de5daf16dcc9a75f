// The report's script where it needs no browser: what it makes of a document of all presets, run by Node.js.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/catch.h"
#include "tests/source_folder.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_json.h"
#include "tuner/report/report_data.h"

using namespace attune;
namespace fs = std::filesystem;

namespace report_script_test {
namespace {

std::string bytes_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

struct Output {
  int status = -1;
  std::string text;
};
Output run(const std::string& command) {
  Output output;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const std::size_t bytes = std::fread(buffer, 1, sizeof(buffer), pipe)) output.text.append(buffer, bytes);
  const int status = ::pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

/// The document of every preset that is shipped.
nlohmann::ordered_json document_of_presets(const fs::path& database_file) {
  TuningDatabase database(database_file);
  for (const auto& entry : fs::directory_iterator(testing::source_folder() / "tuner/presets")) {
    if (entry.path().extension() == ".json")
      database.append_all(import_measurements(bytes_of(entry.path()), entry.path().string()));
  }
  ReportRequest request;
  request.entries = database.list();
  request.selected = most_rows(request.entries, std::nullopt).value();
  return report_data(database, request);
}

}  // namespace

TEST_CASE("report: over all presets labels are unique, and no time is beyond its roofline", "[nogpu]") {
  const test::TemporaryFolder folder;
  const nlohmann::ordered_json document = document_of_presets(folder / "presets.db");
  std::size_t bound = 0, median = 0, status = 0;
  const auto& columns = document.at("columns");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == "bound_us") bound = i;
    if (columns[i] == "median_us") median = i;
    if (columns[i] == "status") status = i;
  }
  std::set<std::string> names;
  std::map<std::string, int> of_pass;
  std::size_t rows = 0;
  for (const auto& problem : document.at("problems")) {
    const std::string name = problem.at("name"), pass = problem.at("pass");
    INFO(name);
    CHECK(names.insert(std::to_string(problem.at("device").get<int>()) + name).second);
    CHECK(name.starts_with(pass + " "));
    CHECK(problem.at("flops_per_pair") == (pass == "backward" ? 10 : 4) * problem.at("head_dim").get<int>());
    ++of_pass[pass];
    for (const auto& row : problem.at("trials")) {
      REQUIRE(row.at(status) == "ok");
      CHECK(row.at(bound).get<double>() > 0);
      CHECK(row.at(bound).get<double>() <= row.at(median).get<double>());
      ++rows;
    }
  }
  CHECK(of_pass["forward"] > 100);
  CHECK(of_pass["backward"] > 40);
  CHECK(rows > names.size());
}

TEST_CASE("report: the script's own arithmetic, by Node.js", "[nogpu]") {
  if (run("node --version").status != 0) {
    WARN("the script's arithmetic was not run: there is no `node` here");
    return;
  }
  const test::TemporaryFolder folder;
  const fs::path scripts = testing::source_folder() / "tuner/report/script";
  std::ofstream(folder / "document.json") << document_of_presets(folder / "presets.db").dump();
  std::ofstream(folder / "all.js") << bytes_of(scripts / "words.js") << bytes_of(scripts / "rows.js")
                                   << bytes_of(testing::source_folder() / "tests/tuner/report/report_script.js");
  const Output output =
      run("node '" + (folder / "all.js").string() + "' '" + (folder / "document.json").string() + "'");
  INFO(output.text);
  CHECK(output.status == 0);
  CHECK_THAT(output.text, ContainsSubstring("15 checks run") && !ContainsSubstring("FAILED"));
}

}  // namespace report_script_test
