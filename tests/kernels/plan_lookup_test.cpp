// A call finds plans that were prepared for other problems: whichever was called before, it gets what it asks for.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Problems with lengths of one bucket and masks that hide little: windows nearly as long as their rows, on one side and
// both.
const std::vector<std::string> kShortRows = {"sq120 d64", "sq117 d64 causal", "sq120 d64 window=100,0",
                                             "sq113 d64 window=100,open", "sq119 d64 window=101,97"};
const std::vector<std::string> kLongRows = {"sq1000 d64", "sq1001 d64 causal", "sq1000 d64 window=800,0",
                                            "sq999 d64 window=900,open", "sq1010 d64 window=800,900"};

AttentionRuntime& fresh(Devices& devices, const std::shared_ptr<Device>& device) {
  devices.runtimes.clear();
  devices.names = {"one device"};
  devices.runtimes.push_back(std::make_unique<AttentionRuntime>(device));
  return *devices.runtimes.front();
}

// Each problem after each other one, in both orders.
void check_pairs(const std::shared_ptr<Device>& device, const std::string& pass,
                 const std::vector<std::string>& texts) {
  Devices devices;
  for (const std::string& before : texts) {
    for (const std::string& text : texts) {
      if (text == before) continue;
      const AttentionProblem called = parse_problem(pass + " bf16 b1 hq2 " + before);
      INFO("after " << canonical_text(called));
      fresh(devices, device).prepare(called);
      if (pass == "forward") {
        ForwardCase test;
        test.problem = parse_problem("forward bf16 b1 hq2 " + text);
        test.looked_up = true;
        check_case(devices, test);
      } else {
        BackwardCase test;
        test.problem = parse_problem("backward bf16 b1 hq2 " + text);
        test.looked_up = true;
        check_case(devices, test);
      }
    }
  }
}

// Problems whose fields ask for a mask that hides nothing, and that run without one.
void check_hiding_nothing(const std::shared_ptr<Device>& device) {
  Devices devices;
  AttentionRuntime& runtime = fresh(devices, device);
  const AttentionProblem none = parse_problem("forward bf16 b2 hq4 hkv2 sq1 skv100 d64");
  for (const auto& [mask, first, last] : {std::tuple(MaskKind::causal, 0, 99), std::tuple(MaskKind::causal, 0, 500),
                                          std::tuple(MaskKind::window, -5, 99)}) {
    ForwardCase test;
    test.problem = none;
    test.problem.mask = mask;
    test.problem.first_offset = first;
    test.problem.mask_offset = last;
    test.looked_up = true;
    INFO(to_string(mask) << " " << first << " " << last);
    check_case(devices, test);
    CHECK(runtime.prepare(test.problem)->plan.problem == none);
  }
  BackwardCase backward;
  backward.problem = parse_problem("backward bf16 b1 hq2 sq1 skv100 d64");
  backward.problem.mask = MaskKind::causal;
  backward.problem.mask_offset = 99;
  backward.looked_up = true;
  check_case(devices, backward);
  CHECK(runtime.prepare(backward.problem)->plan.problem.mask == MaskKind::none);
}

}  // namespace

TEST_CASE("a mask that hides nothing is answered without one on the emulator", "[emulator]") {
  check_hiding_nothing(make_emulator_device(find_device("h200")));
}

TEST_CASE("a mask that hides nothing is answered without one on the GPU", "[gpu]") {
  check_hiding_nothing(open_cuda_device(0));
}

TEST_CASE("a call gets its own mask whatever was called before on the emulator: forward", "[emulator]") {
  check_pairs(make_emulator_device(find_device("h200")), "forward", kShortRows);
}

TEST_CASE("a call gets its own mask whatever was called before on the emulator: backward", "[emulator]") {
  check_pairs(make_emulator_device(find_device("a100")), "backward", kShortRows);
}

TEST_CASE("a call gets its own mask whatever was called before on the GPU", "[gpu]") {
  check_pairs(open_cuda_device(0), "forward", kLongRows);
  check_pairs(open_cuda_device(0), "backward", kLongRows);
}

}  // namespace attune::tests
