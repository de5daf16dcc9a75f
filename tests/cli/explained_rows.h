#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/tuner/test_files.h"

namespace attune::testing {

/// Rows that TMA cannot copy: the default on Hopper is of family sm80, as are the rows that are stored.
inline const std::string kProblem = "forward bf16 b2 hq8 sq1024 d64 causal align2";

/// A row of kProblem as this machine measures it now.
inline attune::Measurement row_of(const std::string& config, double median_us, int samples = 20) {
  attune::Measurement row = attune::test::example_measurement(kProblem, config);
  row.samples_us.clear();
  for (int i = 0; i < samples; ++i) row.samples_us.push_back(median_us * (1 + 0.0001 * (i - samples / 2)));
  row.summarize();
  return attune::test::measured_here(std::move(row));
}

/// The environment names the database, which need not be there yet.
inline std::map<std::string, std::string> with_database(const std::string& database) {
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_DATABASE"] = database;
  return environment;
}

/// What `attune explain` says of a problem on an H200.
inline nlohmann::json explain(const std::string& database, const std::string& problem, const std::string& more = "") {
  std::vector<std::string> arguments = {"explain", "--problem", problem, "--target", "h200", "--json"};
  for (const std::string& word : words(more)) arguments.push_back(word);
  const CommandResult result = run_attune(arguments, with_database(database));
  INFO(result.err);
  REQUIRE(result.status == 0);
  return result.json();
}

}  // namespace attune::testing
