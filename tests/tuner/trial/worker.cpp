#include "tuner/trial/worker.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("a worker refuses what is no request and goes on", "[nogpu]") {
  std::istringstream input(
      "nonsense\n{}\n{\"op\":\"dance\",\"device\":\"emulator\",\"spec\":{},\"problem\":\"forward bf16 b1 hq1 sq1 d64\","
      "\"config\":\"sm80\"}\n{\"op\":\"prepare\",\"device\":\"abacus\",\"spec\":{}}\n");
  std::ostringstream output;
  REQUIRE(run_worker(input, output) == 0);
  std::istringstream lines(output.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    INFO(line);
    const nlohmann::json answer = nlohmann::json::parse(line);
    REQUIRE(answer.at("code") == static_cast<int>(ErrorCode::invalid_argument));
    if (count == 3) REQUIRE_THAT(answer.at("error").get<std::string>(), ContainsSubstring("abacus"));
  }
  REQUIRE(count == 4);
}

TEST_CASE("devices by name", "[nogpu]") {
  REQUIRE(cuda_ordinal("cuda") == 0);
  REQUIRE(cuda_ordinal("cuda:3") == 3);
  for (const char* bad : {"", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "gpu"}) {
    INFO(bad);
    REQUIRE_THROWS_AS(cuda_ordinal(bad), Error);
  }
  using Names = std::vector<std::string>;
  REQUIRE(device_names("cuda:0,2") == Names{"cuda:0", "cuda:2"});
  REQUIRE(device_names("cuda:1") == Names{"cuda:1"});
  REQUIRE(device_names("emulator") == Names{"emulator"});
  for (const char* bad : {"cuda:0,", "cuda:,1", "cuda:0,0", "cuda:0,x", "emulator,cuda:0", "0,1", "emulator:0,1"}) {
    INFO(bad);
    REQUIRE_THROWS_AS(device_names(bad), Error);
  }
}
