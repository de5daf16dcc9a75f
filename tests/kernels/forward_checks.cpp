#include "tests/kernels/forward_checks.h"

#include <utility>

#include "generator/error.h"
#include "tests/catch.h"

namespace attune::tests {

Devices forward_emulators() {
  DeviceSpec spec = find_device("h200");
  spec.l2_bytes = 64 << 10;
  return Devices::emulators(spec);
}

void check_case(Devices& devices, const ForwardCase& test) {
  INFO(to_string(test));
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  ForwardResult first;
  for (std::size_t i = 0; i < devices.runtimes.size(); ++i) {
    INFO(devices.names[i]);
    ForwardResult result;
    try {
      result = run_forward(*devices.runtimes[i], test, data);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
      return;
    }
    if (i == 0) {
      CHECK(complaint(test, data, expected, result) == "");
      first = std::move(result);
    } else {
      CHECK(same_bits(first, result));
    }
  }
}

ForwardCase case_from(const std::string& problem, const std::string& config) {
  ForwardCase test;
  test.problem = parse_problem(problem);
  test.config = parse_config(config);
  return test;
}

}  // namespace attune::tests
