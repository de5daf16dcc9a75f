#include "tests/kernels/forward_checks.h"

#include <utility>

#include "generator/error.h"
#include "generator/rounding.h"
#include "tests/catch.h"

namespace attune::tests {

Devices forward_emulators(int sms) {
  DeviceSpec spec = find_device("h200");
  spec.sm_count = sms;
  spec.l2_bytes = 64 << 10;
  return Devices::emulators(spec);
}

int heads_for(const Devices& devices, int of_h200) {
  return ceil_div(of_h200 * devices.spec().sm_count, find_device("h200").sm_count) + 1;
}

void check_case(Devices& devices, const ForwardCase& test) {
  INFO(to_string(test));
  if (!devices.takes_next(test.problem, test.config)) return;
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  ForwardResult first;
  for (const std::size_t i : devices.of_next_case()) {
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

void check_rows(Devices& devices, const Configs& configs, const RowShapes& shapes) {
  int number = 0;
  for (const char* config : configs) {
    for (const std::string& lengths : shapes.lengths) {
      for (const std::string& mask : shapes.masks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        ForwardCase test = case_from("forward " + dtype + shapes.heads + lengths + " d16" + mask, config);
        test.with_lse = number % 3 != 0;
        check_case(devices, test);
      }
    }
  }
}

}  // namespace attune::tests
